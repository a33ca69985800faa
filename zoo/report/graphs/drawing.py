"""Draws a program's graph before and after the passes, side by side, as one SVG."""

from __future__ import annotations

from functools import cache
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from zoo.records import GraphRecord, NodeKind
from zoo.report.graphs.boxes import Box, Mark, Row, condense, mark_changes
from zoo.report.graphs.layout import Layout, Place, lay_out

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

__all__ = ["figure", "picture", "style"]

_ROW, _CAPTION, _PAD = 24.0, 19.0, 7.0
_WIDE, _SMALL = 7.4, 6.3  # width of a character of an operator's name, and of small print
_MARGIN, _LEGEND, _HEADER = 28.0, 34.0, 104.0  # the legend stands above the header
_BETWEEN = 64.0  # the two panels
_NARROWEST = 240.0  # panel
_USUAL = " float32"
_SIGNS = {
    Mark.SAME: "",
    Mark.REMOVED: "\N{MINUS SIGN}",
    Mark.ADDED: "+",
    Mark.REWIRED: "~",
    Mark.WRONG: "!",
}
_MARK_WORDS = {Mark.WRONG: "first to diverge"}
_MOST_BOXES = (120, 60, 30, 15)  # tried in turn until the picture is light enough

Point = tuple[float, float]

_KIND_WORDS = (
    (NodeKind.HEAVY, "convolution, matrix product"),
    (NodeKind.NORM, "normalisation"),
    (NodeKind.ACTIVATION, "activation"),
    (NodeKind.LAYOUT, "layout"),
    (NodeKind.OTHER, "other"),
)


@cache
def style() -> str:
    """The style sheet of graph pictures, light, dark and print."""
    return Path(__file__).with_name("graph.css").read_text(encoding="utf-8")


def picture(before: GraphRecord, after: GraphRecord, *, title: str = "The graph") -> str:
    """A complete SVG for a file, without scripts or references. See `figure`."""
    drawn = figure(before, after, title=title).removeprefix("<svg").removesuffix("</svg>")
    return f'<svg xmlns="http://www.w3.org/2000/svg"{drawn}<style>{style()}</style></svg>'


def figure(
    before: GraphRecord,
    after: GraphRecord,
    *,
    title: str = "The graph",
    wrong: str | None = None,
    most_bytes: int = 600_000,
) -> Markup:
    """Draw two graphs side by side; what one lacks of the other stands out by colour and sign.

    Straight chains share a box and repeated blocks are told once, so that some hundreds of nodes
    stay readable; of larger graphs only the surroundings of the changes are drawn, and of the
    largest whole modules as one box. Equal graphs are drawn once.

    Args:
        before: the graph before the passes.
        after: the graph after them.
        title: the picture's name, for readers who do not see it.
        wrong: the name of the node that is the first to diverge from eager, to be pointed out.
        most_bytes: the size from which on less is told; the smallest picture may yet be larger.

    Returns:
        An SVG element for a page that has the style sheet `style`. Every text is escaped.
    """
    marks = mark_changes(before, after)
    panels = [
        _Panel("Before", "removed", before, marks[0]),
        _Panel("After", "added", after, marks[1]),
    ]
    if not any(panel.changed for panel in panels):
        panels = [_Panel("The graph", "changed", after, marks[1])]
    for panel in reversed(panels):  # a node of both graphs is wrong after the passes
        if wrong in panel.marks:
            panel.marks[wrong] = Mark.WRONG
            break
    drawings = (_side_by_side(panels, title, most) for most in _MOST_BOXES)
    smallest = ""
    for smallest in drawings:
        if len(smallest) <= most_bytes:
            break
    return Markup(smallest)  # noqa: S704 - every text in it went through `escape`


class _Panel:
    """One of the graphs, under its heading."""

    def __init__(
        self, head: str, verb: str, record: GraphRecord, marks: Mapping[str, Mark]
    ) -> None:
        self.head, self.record, self.marks = head, record, dict(marks)
        self.changed = sum(mark is not Mark.SAME for mark in marks.values())
        changes = f", {self.changed} changed or {verb}" if self.changed else ""
        self.note = f"{_counted(record)} operators{changes}"


def _side_by_side(panels: Sequence[_Panel], title: str, most: int) -> str:
    laid = [_laid(condense(panel.record, panel.marks, most=most)) for panel in panels]
    widths = [max(_NARROWEST, layout.width) for _, layout in laid]
    gaps = _BETWEEN * (len(panels) - 1) + 2 * _MARGIN
    marks = {mark for panel in panels for mark in panel.marks.values()}
    spare = max(0.0, _legend_width(marks) + 2 * _MARGIN - sum(widths) - gaps) / len(panels)
    widths = [width + spare for width in widths]
    height = _HEADER + max(layout.height for _, layout in laid) + _MARGIN
    body = [_legend(_MARGIN, marks)]
    x = _MARGIN
    for panel, (boxes, layout), width in zip(panels, laid, widths, strict=True):
        if x > _MARGIN:
            middle = x - _BETWEEN / 2
            body.append(_line(middle, _MARGIN + _LEGEND, middle, height - _MARGIN))
        body.append(_header(x + width / 2, panel.head, panel.note))
        body.append(_drawn(boxes, layout, x + (width - layout.width) / 2, _HEADER))
        x += width + _BETWEEN
    described = " ".join(f"{panel.head}: {panel.note}." for panel in panels)
    return _svg(sum(widths) + gaps, height, title, described, body)


def _counted(record: GraphRecord) -> int:
    return sum(n.kind not in {NodeKind.INPUT, NodeKind.OUTPUT} for n in record.nodes)


# Panels


def _laid(boxes: Sequence[Box]) -> tuple[Sequence[Box], Layout]:
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
    seen: set[tuple[Point, Point]] = set()
    edges = "".join(_edge(points, seen) for points in layout.edges.values())
    drawn = "".join(_box(box, place) for box, place in zip(boxes, layout.places, strict=True))
    return f'<g transform="translate({_n(x)} {_n(y)})">{edges}{drawn}</g>'


def _edge(points: Sequence[Point], seen: set[tuple[Point, Point]]) -> str:
    """A curve that leaves and arrives vertically, with an arrow's head.

    Edges of one source run together at first: what is in `seen` is not drawn again.
    """
    steps = list(pairwise(points))
    fresh = next((i for i, step in enumerate(steps) if step not in seen), len(steps))
    seen.update(steps)
    (x, y), path = points[fresh], ""
    if fresh < len(steps):
        path = f'<path class="edge" d="{_stroke(points[fresh:])}"/>'
        x, y = points[-1]
    return f'{path}<path class="tip" d="M{_n(x)} {_n(y)}l-4 -7h8z"/>'


def _stroke(points: Sequence[Point]) -> str:
    (x, y), *rest = points
    path = [f"M{_n(x)} {_n(y)}"]
    for next_x, next_y in rest:
        if abs(next_x - x) >= 1:
            bend = (y + next_y) / 2
            path.append(f"C{_n(x)} {_n(bend)} {_n(next_x)} {_n(bend)} {_n(next_x)} {_n(next_y)}")
            x = next_x
        else:
            if path[-1].startswith("V"):
                path.pop()  # one stroke straight through several layers
            path.append(f"V{_n(next_y)}")
        y = next_y
    return "".join(path)


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
    y = _MARGIN + _LEGEND
    return _text(x, y + 8, head, "head", anchor="middle") + _text(
        x, y + 26, note, "small", anchor="middle"
    )


def _legend_entries(marks: Collection[Mark]) -> list[tuple[str, str]]:
    dots = [
        (f'<circle class="{kind}" cx="5" cy="-4" r="4"/>', words) for kind, words in _KIND_WORDS
    ]
    signs = [
        (_text(0, 0.5, _SIGNS[mark], f"sign {mark}"), _MARK_WORDS.get(mark, mark.value))
        for mark in Mark
        if mark in marks and mark is not Mark.SAME
    ]
    return [*dots, *signs]


def _legend_width(marks: Collection[Mark]) -> float:
    return sum(len(words) * 5.6 + 38 for _, words in _legend_entries(marks))


def _legend(y: float, marks: Collection[Mark]) -> str:
    x, parts = _MARGIN, []
    for symbol, words in _legend_entries(marks):
        parts.append(
            f'<g transform="translate({_n(x)} {_n(y)})">{symbol}{_text(14, 0, words, "small")}</g>'
        )
        x += len(words) * 5.6 + 38
    return "".join(parts)


def _svg(width: float, height: float, title: str, description: str, body: Iterable[str]) -> str:
    return (
        f'<svg class="gp" role="img" width="{_n(width)}" height="{_n(height)}" '
        f'viewBox="0 0 {_n(width)} {_n(height)}">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>"
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
