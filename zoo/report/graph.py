"""A program's graph before and after the passes, side by side, as the rows of a table.

Nodes that both graphs have share a row. Of equal blocks in succession the first is shown, and where
there are too many rows, those far from every change are summed up by module.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import groupby, starmap, zip_longest
from typing import TYPE_CHECKING

from zoo.records import NodeKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from zoo.records import GraphNode, GraphRecord, ProgramGraphs

_CONTEXT = 2  # rows above and below a change that are shown as they are
_FEWEST_REPEATS = 3
_USUAL = " float32"  # goes without saying
_NUMBERED = re.compile(r"(?:\w*_)?\d+")  # `3` of `encoder.layers.3.norm`, or `layer_3`
_ENDS = {NodeKind.INPUT, NodeKind.OUTPUT}


class Mark(StrEnum):
    """What became of a node."""

    SAME = "same"
    REMOVED = "removed"
    ADDED = "added"
    REWIRED = "rewired"  # still there, fed by other nodes than before
    WRONG = "wrong"  # the first to diverge from eager


_PHRASES = {Mark.WRONG: "first to diverge"}
_SIGNS = {Mark.REMOVED: "\N{MINUS SIGN}", Mark.ADDED: "+", Mark.REWIRED: "~", Mark.WRONG: "!"}


@dataclass(frozen=True)
class Cell:
    """One graph's half of a row: a node, or several that are shown as one by `summary`."""

    nodes: tuple[GraphNode, ...]
    mark: Mark = Mark.SAME
    changes: int = 0  # nodes that are marked
    summary: str = ""
    note: str = ""  # its shape where that is another than above, and what else feeds it

    @property
    def text(self) -> str:
        """What the row says."""
        return self.summary or self.nodes[0].operator

    @property
    def tip(self) -> str:
        """A single node's name, module, tensor and what feeds it."""
        node = self.nodes[0]
        fed = "from " * bool(node.inputs) + ", ".join(node.inputs)
        facts = () if self.summary else (node.name, node.module, node.detail, fed)
        return " · ".join(fact for fact in facts if fact)

    @property
    def sign(self) -> str:
        """What became of it, for readers who do not see colours."""
        return _SIGNS.get(self.mark, "")


@dataclass(frozen=True)
class Row:
    """Cells side by side; None where a graph has nothing here. `caption` begins a module."""

    before: Cell | None
    after: Cell | None
    caption: str = ""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Those that there are, the later graph's first."""
        return tuple(cell for cell in (self.after, self.before) if cell is not None)

    @property
    def node(self) -> GraphNode:
        """The first node, of the later graph where that has one."""
        return self.cells[0].nodes[0]


@dataclass(frozen=True)
class GraphTable:
    """Two graphs as a table, or one where they are equal.

    `columns` are their names with how many operators each has; `marks` those that occur.
    """

    program: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    marks: tuple[tuple[str, str], ...]


def graph_table(
    graphs: ProgramGraphs, *, wrong: str | None = None, most_rows: int = 200
) -> GraphTable:
    """A program's graphs side by side; what one lacks of the other has a mark and a sign.

    Args:
        graphs: of a program.
        wrong: the name of the node that is the first to diverge from eager, to be pointed out.
        most_rows: the number of rows from which on less is shown; see `condense`.
    """
    marks = mark_changes(graphs.before, graphs.after)
    same = all(mark is Mark.SAME for side in marks for mark in side.values())
    for side in reversed(marks):  # a node of both graphs is wrong after the passes
        if wrong in side:
            side[wrong] = Mark.WRONG
            break
    rows = condense(align(graphs.before, graphs.after, marks), most=most_rows)
    cells = _noted([row.before for row in rows]), _noted([row.after for row in rows])
    rows = list(_captioned([Row(*pair) for pair in zip(*cells, strict=True)]))
    before = "Before the passes", _note(marks[0], graphs.before, "removed")
    after = "After them", _note(marks[1], graphs.after, "added")
    there = {mark for side in marks for mark in side.values()}
    signs = tuple((_SIGNS[m], _PHRASES.get(m, m.value)) for m in Mark if m in there & _SIGNS.keys())
    columns = (("The graph", after[1]),) if same else (before, after)
    return GraphTable(graphs.program, columns, tuple(rows), signs)


def _noted(cells: Sequence[Cell | None]) -> list[Cell | None]:
    """One graph's cells with their notes: what is as in the cell above goes without saying."""
    found: list[Cell | None] = []
    above, shape = "", ""
    for cell in cells:
        if cell is None:
            found.append(None)
            continue
        node = cell.nodes[0]
        distant = [] if cell.summary else [name for name in node.inputs if name != above]
        shown = "" if cell.summary or node.detail == shape else node.detail.removesuffix(_USUAL)
        fed = f"from {', '.join(distant)}" if distant else ""
        found.append(replace(cell, note=" ".join(part for part in (shown, fed) if part)))
        above, shape = cell.nodes[-1].name, cell.nodes[-1].detail or shape
    return found


def _note(marks: Mapping[str, Mark], record: GraphRecord, verb: str) -> str:
    operators = sum(n.kind not in _ENDS for n in record.nodes)
    changed = sum(mark is not Mark.SAME for mark in marks.values())
    return f"{operators} operators" + f", {changed} changed or {verb}" * bool(changed)


def _captioned(rows: Sequence[Row]) -> Iterator[Row]:
    """The rows, each that begins a block with the block's name."""
    modules = {row.node.module for row in rows}
    outer = {m[:i] for m in modules for i, letter in enumerate(m) if letter == "."}
    last = ""
    for row in rows:
        module = row.node.module
        container = module if module in outer else module.rpartition(".")[0]
        name = last if row.cells[0].summary else block_of(container, 2) or container
        yield row if name in {last, ""} else replace(row, caption=name)
        last = name


def mark_changes(
    before: GraphRecord, after: GraphRecord
) -> tuple[dict[str, Mark], dict[str, Mark]]:
    """What became of every node of either graph; a node is known by its name and operator."""
    left = {n.name: n for n in before.nodes}
    right = {n.name: n for n in after.nodes}
    kept = {
        name for name in left.keys() & right.keys() if left[name].operator == right[name].operator
    }

    def mark(node: GraphNode, lost: Mark) -> Mark:
        if node.name not in kept:
            return lost
        differing = set(left[node.name].inputs) ^ set(right[node.name].inputs)
        return Mark.REWIRED if differing and differing <= kept else Mark.SAME

    return (
        {n.name: mark(n, Mark.REMOVED) for n in before.nodes},
        {n.name: mark(n, Mark.ADDED) for n in after.nodes},
    )


def align(
    before: GraphRecord, after: GraphRecord, marks: tuple[Mapping[str, Mark], Mapping[str, Mark]]
) -> list[Row]:
    """The nodes of both graphs in rows, in the order of each; what both have shares a row."""
    left, right = (
        [Cell((n,), mark[n.name], int(mark[n.name] is not Mark.SAME)) for n in record.nodes]
        for record, mark in zip((before, after), marks, strict=True)
    )
    return list(_paired(left, right, ("name", "module")))


def _paired(left: Sequence[Cell], right: Sequence[Cell], keys: Sequence[str]) -> Iterator[Row]:
    """Cells share a row whose nodes have the same operator and the same of the first key.

    Those between them are paired by the next key, or as they are.
    """
    if not keys:
        yield from starmap(Row, zip_longest(left, right))
        return
    key, *others = keys
    before, after = (
        [(getattr(cell.nodes[0], key), cell.nodes[0].operator) for cell in side]
        for side in (left, right)
    )
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for kind, i, i_end, j, j_end in matcher.get_opcodes():
        rest = () if kind == "equal" else others
        yield from _paired(left[i:i_end], right[j:j_end], rest)


def block_of(module: str, depth: int) -> str:
    """A module's path down to its `depth`th numbered name, or the last one; empty without any."""
    names = module.split(".")
    numbered = [i for i, name in enumerate(names) if _NUMBERED.fullmatch(name)]
    return ".".join(names[: numbered[:depth][-1] + 1]) if numbered else ""


def condense(rows: Sequence[Row], *, most: int) -> list[Row]:
    """Fewer rows that tell the same.

    Args:
        rows: as aligned.
        most: the number of rows from which on neighbours of one module are summed up: first those
            far from every change, by ever shorter paths, then the others too. A wrong node is
            always shown. Inputs and outputs are, too, so that there may be more rows yet.
    """
    for depth in (1, 2):
        rows = _without_repeats(rows, depth)
    condensed = list(rows)
    deepest = max((row.node.module.count(".") + 1 for row in rows), default=0)
    cells = [row.cells for row in rows]
    changed = [i for i, each in enumerate(cells) if any(cell.changes for cell in each)]
    near = {place for i in changed for place in range(i - _CONTEXT, i + _CONTEXT + 1)}
    wrong = {i for i, each in enumerate(cells) if Mark.WRONG in {cell.mark for cell in each}}
    for kept in (near, wrong):
        for depth in range(deepest, -1, -1):
            if len(condensed) <= most:
                return condensed
            condensed = list(_by_module(rows, kept, depth))
    return condensed


# Repeated blocks


def _without_repeats(rows: Sequence[Row], depth: int) -> list[Row]:
    """Of three or more equal blocks in succession the first stays; one row tells of the rest."""

    def name_of(row: Row) -> str:
        return "" if row.cells[0].summary else block_of(row.node.module, depth)

    blocks = [(name, list(group)) for name, group in groupby(rows, key=name_of)]
    result: list[Row] = []
    for shape, run in groupby(blocks, key=lambda block: _shape(*block)):
        alike = list(run)
        if not shape or len(alike) < _FEWEST_REPEATS:
            result += [row for _, group in alike for row in group]
            continue
        (_, first), *rest = alike
        names = [name for name, _ in rest]
        summary = f"{len(rest)} more like it: {names[0]} to {names[-1].rpartition('.')[2]}"
        result += [*first, _summed([row for _, group in rest for row in group], summary)]
    return result


def _shape(name: str, rows: Sequence[Row]) -> tuple[object, ...]:
    """Equal for blocks that look the same: operators, marks, inner edges; empty: not a block."""
    if not name or len(rows) == 1:
        return ()
    before, after = _form([row.before for row in rows]), _form([row.after for row in rows])
    return (name.rpartition(".")[0], *before, *after)


def _form(cells: Sequence[Cell | None]) -> Iterator[object]:
    nodes = [n for cell in cells if cell for n in cell.nodes]
    index = {n.name: i for i, n in enumerate(nodes)}
    for cell in cells:
        if cell is None:
            yield None
        else:
            node = cell.nodes[0]
            yield node.operator, cell.mark, tuple(index.get(name, -1) for name in node.inputs)


def _summed(rows: Sequence[Row], summary: str = "", module: str = "") -> Row:
    """One row for several; without a summary each half counts its operators."""

    def half(cells: Sequence[Cell | None]) -> Cell | None:
        there = [cell for cell in cells if cell is not None]
        if not there:
            return None
        nodes = tuple(n for cell in there for n in cell.nodes)
        changes = sum(cell.changes for cell in there)
        counted = f"{module}: " * bool(module) + f"{len(nodes)} operators"
        counted += f", {changes} changed" * bool(changes)
        mark = min({cell.mark for cell in there} - {Mark.SAME}, default=Mark.SAME)
        return Cell(nodes, mark, changes, summary or counted)

    return Row(half([row.before for row in rows]), half([row.after for row in rows]))


# Large graphs


def _by_module(rows: Sequence[Row], kept: Collection[int], depth: int) -> Iterator[Row]:
    """Neighbouring rows of one module become one, but for those to be kept.

    Args:
        rows: all of them, in order.
        kept: positions of those that stand for themselves; inputs and outputs do anyway.
        depth: how many names of a module's path count.
    """

    def module(entry: tuple[int, Row]) -> str | None:
        position, row = entry
        if position in kept or row.node.kind in _ENDS:
            return None
        return ".".join(row.node.module.split(".")[:depth])

    for name, group in groupby(enumerate(rows), key=module):
        members = [row for _, row in group]
        if name is None or len(members) == 1:
            yield from members
        else:
            yield _summed(members, module=name)
