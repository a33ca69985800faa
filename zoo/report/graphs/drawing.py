"""Draws a program's graph before and after the passes, side by side, as one SVG."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from zoo.report.graphs.boxes import Box, Mark, Row, condense, mark_changes
from zoo.report.graphs.layout import Layout, Place, lay_out
from zoo.evidence import GraphRecord, NodeKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["picture"]

_ROW, _CAPTION, _PAD = 24.0, 19.0, 7.0
_WIDE, _SMALL = 7.4, 6.3  # width of a character of an operator's name, and of small print
_MARGIN, _HEADER, _LEGEND = 28.0, 70.0, 46.0
_BETWEEN = 64.0  # the two panels
_NARROWEST = 240.0  # panel
_USUAL = " float32"
_SIGNS = {Mark.SAME: "", Mark.REMOVED: "−", Mark.ADDED: "+", Mark.REWIRED: "~"}  # noqa: RUF001

_STYLE = """
.gp{--paper:#fff;--ink:#18211d;--muted:#5c6962;--line:#d9d7cf;--edge:#a9b3ad;--card:#faf9f6;
--removed:#b3261e;--removed-soft:#fce9e6;--added:#12703f;--added-soft:#e0f3e6;--rewired:#8a5200;
--rewired-soft:#fdf0d5;--heavy:#0b7a6b;--norm:#4c78a8;--activation:#e0a030;--layout:#9a6fb0;
--other:#8a8f8c;
font-family:Inter,-apple-system,"Segoe UI",Roboto,"Liberation Sans",system-ui,sans-serif}
@media (prefers-color-scheme:dark){.gp{--paper:#181f1c;--ink:#e8edea;--muted:#98a69f;--line:#2f3a35;
--edge:#5d6b64;--card:#1e2623;--removed:#ff8f82;--removed-soft:#3a1a17;--added:#6cdc97;
--added-soft:#15301f;--rewired:#f3bd63;--rewired-soft:#33270f;--heavy:#45cdb7;--norm:#7fabdc;
--activation:#f0c060;--layout:#c79be0;--other:#a0a8a4}}
.gp text{fill:var(--ink)}.gp .paper{fill:var(--paper)}
.gp .op{font:12.3px ui-monospace,"SF Mono","Cascadia Mono","DejaVu Sans Mono",monospace}
.gp .small{font-size:11px;fill:var(--muted);font-variant-numeric:tabular-nums}
.gp .head{font-size:17px;font-weight:650;letter-spacing:-.01em}
.gp .box{fill:var(--card);stroke:var(--line)}.gp .changed{stroke-width:1.6}
.gp .end{fill:var(--paper);stroke:var(--muted)}.gp .summary{font-style:italic;fill:var(--muted)}
.gp .edge{fill:none;stroke:var(--edge);stroke-width:1.4}.gp .tip{fill:var(--edge)}
.gp .rule{stroke:var(--line)}.gp .sign{font:700 13px ui-monospace,monospace}
.gp .heavy{fill:var(--heavy)}.gp .norm{fill:var(--norm)}.gp .activation{fill:var(--activation)}
.gp .layout{fill:var(--layout)}.gp .other{fill:var(--other)}
.gp .removed-row{fill:var(--removed-soft)}.gp .added-row{fill:var(--added-soft)}
.gp .rewired-row{fill:var(--rewired-soft)}.gp .box.removed{stroke:var(--removed)}
.gp .box.added{stroke:var(--added)}.gp .box.rewired{stroke:var(--rewired)}
.gp text.removed{fill:var(--removed)}.gp text.added{fill:var(--added)}
.gp text.rewired{fill:var(--rewired)}.gp .behind{fill:var(--card);stroke:var(--line)}
"""

_KIND_WORDS = (
    (NodeKind.HEAVY, "convolution, matrix product"),
    (NodeKind.NORM, "normalisation"),
    (NodeKind.ACTIVATION, "activation"),
    (NodeKind.LAYOUT, "layout"),
    (NodeKind.OTHER, "other"),
)


def picture(before: GraphRecord, after: GraphRecord, *, title: str = "The graph") -> str:
    """Draw two graphs side by side; what one lacks of the other stands out by colour and sign.

    Straight chains share a box and repeated blocks are told once, so that some hundreds of nodes
    stay readable; of larger graphs only the surroundings of the changes are drawn.

    Args:
        before: the graph before the passes.
        after: the graph after them.
        title: the picture's name, for a heading of its own and for readers who do not see it.

    Returns:
        A complete SVG element without scripts or references; it carries its own light and dark
        colours and can stand in a page or in a file.
    """
    marks = mark_changes(before, after)
    panels = [
        _panel(condense(record, mark)) for record, mark in zip((before, after), marks, strict=True)
    ]
    widths = [max(_NARROWEST, layout.width) for _, layout in panels]
    width = max(sum(widths) + _BETWEEN + 2 * _MARGIN, _legend_width() + 2 * _MARGIN)
    spare = (width - 2 * _MARGIN - _BETWEEN - sum(widths)) / 2
    widths = [w + spare for w in widths]
    height = _HEADER + max(layout.height for _, layout in panels) + _LEGEND + _MARGIN
    counts = [_counted(record) for record in (before, after)]
    changed = [sum(m is not Mark.SAME for m in mark.values()) for mark in marks]
    body = [_legend(height - _MARGIN)]
    heads = (
        ("Before", f"{counts[0]} operators, {changed[0]} changed or removed"),
        ("After", f"{counts[1]} operators, {changed[1]} changed or added"),
    )
    x = _MARGIN
    for (boxes, layout), panel, (head, note) in zip(panels, widths, heads, strict=True):
        body.append(_header(x + panel / 2, head, note))
        body.append(_drawn(boxes, layout, x + (panel - layout.width) / 2, _HEADER))
        x += panel + _BETWEEN
    middle = _MARGIN + widths[0] + _BETWEEN / 2
    body.append(_line(middle, _MARGIN, middle, height - _LEGEND - _MARGIN / 2))
    described = f"Before: {heads[0][1]}. After: {heads[1][1]}."
    return _svg(width, height, title, described, body)


def _counted(record: GraphRecord) -> int:
    return sum(n.kind not in {NodeKind.INPUT, NodeKind.OUTPUT} for n in record.nodes)


# Panels


def _panel(boxes: Sequence[Box]) -> tuple[Sequence[Box], Layout]:
    return boxes, lay_out([_size(b) for b in boxes], [b.inputs for b in boxes])


def _size(box: Box) -> tuple[float, float]:
    details = _details(box)
    rows = [
        len(r.text) * _WIDE
        + len(d) * _SMALL
        + (18 if d else 0)
        + (42 if r.mark is Mark.SAME else 52)
        for r, d in zip(box.rows, details, strict=True)
    ]
    width = max([*rows, len(box.caption) * _SMALL + 26, 96.0])
    return width, len(box.rows) * _ROW + 2 * _PAD + (_CAPTION if box.caption else 0)


def _details(box: Box) -> list[str]:
    """Each row's shape where it is another than the row's above; float32 goes without saying."""
    shown, last = [], ""
    for row in box.rows:
        shown.append(row.detail.removesuffix(_USUAL) if row.detail != last else "")
        last = row.detail or last
    return shown


def _drawn(boxes: Sequence[Box], layout: Layout, x: float, y: float) -> str:
    edges = "".join(_edge(points) for points in layout.edges.values())
    drawn = "".join(_box(box, place) for box, place in zip(boxes, layout.places, strict=True))
    return f'<g transform="translate({_n(x)} {_n(y)})">{edges}{drawn}</g>'


def _edge(points: Sequence[tuple[float, float]]) -> str:
    """A curve that leaves and arrives vertically, with an arrow's head."""
    (x, y), *rest = points
    path = [f"M{_n(x)} {_n(y)}"]
    for next_x, next_y in rest:
        if abs(next_x - x) < 1:
            path.append(f"L{_n(next_x)} {_n(next_y)}")
        else:
            bend = (y + next_y) / 2
            path.append(f"C{_n(x)} {_n(bend)} {_n(next_x)} {_n(bend)} {_n(next_x)} {_n(next_y)}")
        x, y = next_x, next_y
    head = f'<path class="tip" d="M{_n(x)} {_n(y)}l-4 -7h8z"/>'
    return f'<path class="edge" d="{"".join(path)}"/>{head}'


def _box(box: Box, place: Place) -> str:
    marks = {row.mark for row in box.rows} - {Mark.SAME}
    style = f"box changed {marks.pop().value}" if len(marks) == 1 else "box"
    radius = 8.0
    if box.kind in {NodeKind.INPUT, NodeKind.OUTPUT}:
        style, radius = "end", place.height / 2
    parts = []
    if box.rows[0].summary and len(box.rows) == 1:  # a stack of cards
        parts = [_rect(place.x + d, place.y + d, place, "behind", radius) for d in (7.0, 3.5)]
    parts.append(_rect(place.x, place.y, place, style, radius))
    y = place.y + _PAD
    if box.caption:
        parts.append(_text(place.x + 13, y + 11, box.caption, "small"))
        y += _CAPTION
    for row, detail in zip(box.rows, _details(box), strict=True):
        parts.append(_row(row, detail, place.x, y, place.width))
        y += _ROW
    return "".join(parts)


def _row(row: Row, detail: str, x: float, y: float, width: float) -> str:
    end = row.kind in {NodeKind.INPUT, NodeKind.OUTPUT}
    middle = y + _ROW / 2
    parts = [f"<title>{escape(row.tip)}</title>" if row.tip else ""]
    if row.mark is not Mark.SAME:
        parts.append(
            f'<rect class="{row.mark}-row" x="{_n(x + 4)}" y="{_n(y + 1)}" rx="4" '
            f'width="{_n(width - 8)}" height="{_n(_ROW - 2)}"/>'
        )
        parts.append(_text(x + width - 15, middle + 4.5, _SIGNS[row.mark], f"sign {row.mark}"))
    if not row.summary and not end:
        parts.append(f'<circle class="{row.kind}" cx="{_n(x + 16)}" cy="{_n(middle)}" r="4"/>')
    start = x + (16 if end or row.summary else 27)
    anchor, style = "start", "small summary" if row.summary else "op"
    if end and not detail:
        start, anchor = x + width / 2, "middle"
    words = f"⋯ {row.text}" if row.summary else row.text
    parts.append(_text(start, middle + 4.2, words, style, anchor=anchor))
    if detail:
        room = 20 if row.mark is not Mark.SAME else 12
        parts.append(_text(x + width - room, middle + 4, detail, "small", anchor="end"))
    return f"<g>{''.join(parts)}</g>"


# Around them


def _header(x: float, head: str, note: str) -> str:
    return _text(x, _MARGIN + 8, head, "head", anchor="middle") + _text(
        x, _MARGIN + 26, note, "small", anchor="middle"
    )


def _legend_entries() -> list[tuple[str, str]]:
    dots = [
        (f'<circle class="{kind}" cx="5" cy="-4" r="4"/>', words) for kind, words in _KIND_WORDS
    ]
    signs = [
        (_text(0, 0.5, _SIGNS[mark], f"sign {mark}"), mark.value)
        for mark in (Mark.REMOVED, Mark.ADDED, Mark.REWIRED)
    ]
    return [*dots, *signs]


def _legend_width() -> float:
    return sum(len(words) * 5.6 + 38 for _, words in _legend_entries())


def _legend(y: float) -> str:
    x, parts = _MARGIN, []
    for symbol, words in _legend_entries():
        parts.append(
            f'<g transform="translate({_n(x)} {_n(y)})">{symbol}{_text(14, 0, words, "small")}</g>'
        )
        x += len(words) * 5.6 + 38
    return "".join(parts)


def _svg(width: float, height: float, title: str, description: str, body: Iterable[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="gp" role="img" width="{_n(width)}" '
        f'height="{_n(height)}" viewBox="0 0 {_n(width)} {_n(height)}" '
        f'style="max-width:100%;height:auto"><title>{escape(title)}</title>'
        f"<desc>{escape(description)}</desc><style>{_STYLE.strip()}</style>"
        f'<rect class="paper" width="100%" height="100%" rx="14"/>{"".join(body)}</svg>'
    )


def _rect(x: float, y: float, place: Place, style: str, radius: float) -> str:
    return (
        f'<rect class="{style}" x="{_n(x)}" y="{_n(y)}" width="{_n(place.width)}" '
        f'height="{_n(place.height)}" rx="{_n(radius)}"/>'
    )


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="rule" x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"/>'


def _text(x: float, y: float, content: str, style: str, *, anchor: str = "start") -> str:
    return (
        f'<text class="{style}" x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}">'
        f"{escape(content)}</text>"
    )


def _n(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")
