"""Draws a program's graph before and after the passes, side by side, as one SVG.

Each graph is a column of operators from the input down to the output. A line runs from an operator
to the next one where that uses it; users further down are reached by lanes beside the column.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from zoo.records import NodeKind
from zoo.report.graphs.lanes import lay_lanes
from zoo.report.graphs.rows import Mark, align, block_of, condense, inputs_of, mark_changes
from zoo.report.svg import circle, group, line, path, rect, text
from zoo.report.svg import picture as draw

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from zoo.records import GraphRecord
    from zoo.report.graphs.lanes import Lane
    from zoo.report.graphs.rows import Cell, Row

__all__ = ["figure", "picture", "style"]

_ROW, _CAPTION, _MARGIN, _BETWEEN = 23.0, 27.0, 28.0, 44.0
_HEADER = 104.0  # the legend, and a heading above each column
_LANE, _BEND = 9.0, 6.0
_WIDE, _SMALL = 7.4, 6.3  # width of a character of an operator's name, and of small print
_NARROWEST = 300.0  # column
_USUAL = " float32"  # goes without saying
_SIGNS = {Mark.REMOVED: "\N{MINUS SIGN}", Mark.ADDED: "+", Mark.REWIRED: "~", Mark.WRONG: "!"}
_MARK_PHRASES = {Mark.WRONG: "first to diverge"}
_KIND_PHRASES = {
    NodeKind.HEAVY: "convolution, matrix product",
    NodeKind.NORM: "normalisation",
    NodeKind.ACTIVATION: "activation",
    NodeKind.LAYOUT: "layout",
    NodeKind.OTHER: "other",
}
_ENDS = {NodeKind.INPUT, NodeKind.OUTPUT}
_PAPER = Markup('<rect class="paper" width="100%" height="100%" rx="14"/>')


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
    most_rows: int = 200,
) -> Markup:
    """Draw two graphs side by side; what one lacks of the other stands out by colour and sign.

    Repeated blocks are told once; of large graphs only the surroundings of the changes are drawn,
    and of the largest whole modules as one row. Equal graphs are drawn once.

    Args:
        before: the graph before the passes.
        after: the graph after them.
        title: the picture's name, for readers who do not see it.
        wrong: the name of the node that is the first to diverge from eager, to be pointed out.
        most_rows: the number of rows from which on less is told; see `condense`.

    Returns:
        An SVG element for a page that has the style sheet `style`. Every text is escaped.
    """
    marks = mark_changes(before, after)
    same = all(mark is Mark.SAME for side in marks for mark in side.values())
    for side in reversed(marks):  # a node of both graphs is wrong after the passes
        if wrong in side:
            side[wrong] = Mark.WRONG
            break
    rows = condense(align(before, after, marks), most=most_rows)
    tops, captions = _heights(rows)
    columns = [
        _Column("Before", _note(marks[0], before, "removed"), [row.before for row in rows], tops),
        _Column("After", _note(marks[1], after, "added"), [row.after for row in rows], tops),
    ]
    if same:
        columns = [_Column("The graph", _note(marks[1], after, "changed"), columns[1].cells, tops)]
    legend, legend_width = _legend({mark for side in marks for mark in side.values()})
    width = max(_NARROWEST, legend_width / len(columns), *(column.width for column in columns))
    body = [_PAPER, group(_MARGIN, _MARGIN, legend)]
    for number, column in enumerate(columns):
        x = _MARGIN + number * (width + _BETWEEN)
        body.append(group(x, 0, column.drawn(width, captions)))
        if number:
            rule = x - _BETWEEN / 2
            body.append(line(rule, 62, rule, tops[-1] - 8, "rule"))
    described = " ".join(f"{column.name}: {column.note}." for column in columns)
    size = x + width + _MARGIN, tops[-1] + 12
    return draw("gp", size, title, described, body, fixed=True)


def _note(marks: Mapping[str, Mark], record: GraphRecord, verb: str) -> str:
    operators = sum(n.kind not in _ENDS for n in record.nodes)
    changed = sum(mark is not Mark.SAME for mark in marks.values())
    return f"{operators} operators" + f", {changed} changed or {verb}" * bool(changed)


def _heights(rows: Sequence[Row]) -> tuple[list[float], list[tuple[float, str]]]:
    """The upper edge of each row and the end of the last; where a block begins, its caption."""
    modules = {row.node.module for row in rows}
    outer = {m[:i] for m in modules for i, letter in enumerate(m) if letter == "."}
    y, tops, captions, last = _HEADER, [], [], ""
    for row in rows:
        module = row.node.module
        container = module if module in outer else module.rpartition(".")[0]
        name = last if row.cells[0].summary else block_of(container, 2) or container
        if name not in {last, ""}:
            captions.append((y + 19, name))
            y += _CAPTION
        last = name
        tops.append(y)
        y += _ROW
    return [*tops, y], captions


class _Column:
    """One graph: its lanes at the left, its operators beside them.

    Args:
        name: its heading.
        note: what stands below that.
        cells: one a row, None where only the other graph has something.
        tops: the upper edge of each row.
    """

    def __init__(
        self, name: str, note: str, cells: Sequence[Cell | None], tops: Sequence[float]
    ) -> None:
        self.name, self.note, self.cells = name, note, cells
        self._middles = [top + _ROW / 2 for top in tops]
        self._there = [(i, cell) for i, cell in enumerate(cells) if cell is not None]
        self._inputs = inputs_of(cells)
        self._lanes = lay_lanes([i for i, _ in self._there], self._inputs)
        self._dots = max((lane.number + 1 for lane in self._lanes), default=0) * _LANE + 12
        self._details = list(self._new_details())
        widths = [
            len(cell.text) * (_SMALL if cell.summary else _WIDE) + len(detail) * _SMALL
            for (_, cell), detail in zip(self._there, self._details, strict=True)
        ]
        self.width = self._dots + max(widths, default=0) + 62

    def drawn(self, width: float, captions: Iterable[tuple[float, str]]) -> Iterator[Markup]:
        """The elements, lines below operators."""
        yield text(0, 70, self.name, "head")
        yield text(0, 88, self.note, "small")
        for y, name in captions:
            yield text(self._dots + 15, y, name, "module")
        yield from self._lines()
        for lane in self._lanes:
            yield from self._drawn_lane(lane)
        for (i, cell), detail in zip(self._there, self._details, strict=True):
            yield group(0, self._middles[i], self._operator(cell, detail, width), tip=cell.tip)

    def _new_details(self) -> Iterator[str]:
        """Each cell's shape where it is another than that of the cell above."""
        last = ""
        for _, cell in self._there:
            yield cell.detail.removesuffix(_USUAL) if cell.detail != last else ""
            last = cell.detail or last

    def _lines(self) -> Iterator[Markup]:
        """Between neighbours."""
        for (above, _), (below, _) in pairwise(self._there):
            if above in self._inputs[below]:
                start, end = self._middles[above] + 6, self._middles[below] - 6
                yield line(self._dots, start, self._dots, end, "edge")

    def _drawn_lane(self, lane: Lane) -> Iterator[Markup]:
        """Out of the source, down the lane, and into each user."""
        x, trunk = self._dots - 8, self._dots - 14 - lane.number * _LANE
        bend, start = trunk + _BEND, self._middles[lane.source]
        steps = f"M{x} {start}H{bend}Q{trunk} {start} {trunk} {start + _BEND}"
        for user in lane.users:
            y = self._middles[user]
            steps += f"V{y - _BEND}Q{trunk} {y} {bend} {y}H{x - 3}M{trunk} {y - _BEND}"
            yield path(f"M{x + 1} {y}l-6-3.5v7z", "tip")
        yield path(steps.rpartition("M")[0], "edge")

    def _operator(self, cell: Cell, detail: str, width: float) -> Iterator[Markup]:
        x, kind = self._dots, cell.nodes[0].kind
        if cell.mark is not Mark.SAME:
            yield rect(x + 9, 1.5 - _ROW / 2, width - x - 9, _ROW - 3, f"{cell.mark}-row", round_=4)
            yield text(width - 8, 4.5, _SIGNS[cell.mark], f"sign {cell.mark}", anchor="end")
        if cell.summary:
            yield text(x, 3.5, "⋮", "small", anchor="middle")
        else:
            yield circle(x, 0, 4.5, "end" if kind in _ENDS else kind)
        yield text(x + 15, 4.2, cell.text, "small summary" if cell.summary else "op")
        if detail:
            yield text(width - 26, 4, detail, "small", anchor="end")


def _legend(marks: set[Mark]) -> tuple[list[Markup], float]:
    """The legend's entries in a line, and its width; marks that are not there are left out."""
    entries = [(circle(5, -4, 4.5, kind), words) for kind, words in _KIND_PHRASES.items()]
    entries += [
        (text(0, 0.5, sign, f"sign {mark}"), _MARK_PHRASES.get(mark, mark.value))
        for mark, sign in _SIGNS.items()
        if mark in marks
    ]
    parts, x = [], 0.0
    for symbol, words in entries:
        parts.append(group(x, 0, [symbol, text(14, 0, words, "small")]))
        x += len(words) * 5.6 + 38
    return parts, x
