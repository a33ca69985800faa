"""A program's graph before and after the passes, as the lines of one listing, like a diff of text.

Nodes that both graphs have are one line. Of equal blocks in succession the first is shown, and
where there are too many lines, those far from every change are summed up by module.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING

from zoo.records import NodeKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from zoo.records import GraphNode, GraphRecord, ProgramGraphs

_CONTEXT = 2  # lines above and below a change that are shown as they are
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
    MIXED = "mixed"  # of a summary: several of these
    WRONG = "wrong"  # the first to diverge from eager


_PHRASES = {Mark.MIXED: "several of these", Mark.WRONG: "first to diverge"}
_SIGNS = {
    Mark.REMOVED: "\N{MINUS SIGN}",
    Mark.ADDED: "+",
    Mark.REWIRED: "~",
    Mark.MIXED: "\N{PLUS-MINUS SIGN}",
    Mark.WRONG: "!",
}


@dataclass(frozen=True)
class Line:
    """A node, or several that are shown as one by `summary`."""

    nodes: tuple[GraphNode, ...]
    mark: Mark = Mark.SAME
    changes: int = 0  # nodes that are marked
    summary: str = ""
    note: str = ""  # its shape where that is another than above, and what else feeds it
    caption: str = ""  # the module that begins here

    @property
    def node(self) -> GraphNode:
        """The first of them."""
        return self.nodes[0]

    @property
    def text(self) -> str:
        """What the line says."""
        return self.summary or self.node.operator

    @property
    def tip(self) -> str:
        """A single node's name, module, tensor and what feeds it."""
        node = self.node
        fed = "from " * bool(node.inputs) + ", ".join(node.inputs)
        facts = () if self.summary else (node.name, node.module, node.detail, fed)
        return " · ".join(fact for fact in facts if fact)

    @property
    def sign(self) -> str:
        """What became of it, for readers who do not see colours."""
        return _SIGNS.get(self.mark, "")


@dataclass(frozen=True)
class GraphListing:
    """Two graphs as lines; `heading` counts their operators, `marks` are those that occur."""

    program: str
    heading: str
    lines: tuple[Line, ...]
    marks: tuple[tuple[str, str], ...]


def graph_listing(
    graphs: ProgramGraphs, *, wrong: str | None = None, most_lines: int = 300
) -> GraphListing:
    """A program's graphs as one listing; what one lacks of the other has a mark and a sign.

    Args:
        graphs: of a program.
        wrong: the name of the node that is the first to diverge from eager, to be pointed out.
        most_lines: the number of lines from which on less is shown; see `condense`.
    """
    lines = merge(graphs.before, graphs.after)
    # A node of both graphs is wrong after the passes.
    places = sorted(
        (line.mark is not Mark.REMOVED, i)
        for i, line in enumerate(lines)
        if line.node.name == wrong
    )
    for _, place in places[-1:]:
        lines[place] = replace(lines[place], mark=Mark.WRONG, changes=1)
    shown = condense(lines, most=most_lines)
    marks = {line.mark for line in (*lines, *shown)}
    before, after = (
        sum(node.kind not in _ENDS for node in record.nodes)
        for record in (graphs.before, graphs.after)
    )
    heading = f"{after} operators"
    if any(line.changes for line in lines):
        heading = f"{before} operators before the passes, {after} after them"
    return GraphListing(
        program=graphs.program,
        heading=heading,
        lines=tuple(_annotated(shown)),
        marks=tuple((_SIGNS[m], _PHRASES.get(m, m.value)) for m in Mark if m in marks & {*_SIGNS}),
    )


def merge(before: GraphRecord, after: GraphRecord) -> list[Line]:
    """The nodes of both graphs in order; one is known by its name and operator."""
    left, right = ([(n.name, n.operator) for n in record.nodes] for record in (before, after))
    steps = SequenceMatcher(None, left, right, autojunk=False).get_opcodes()
    kept = {name for kind, *at, _, _ in steps if kind == "equal" for name, _ in left[slice(*at)]}
    lines: list[Line] = []
    for kind, i, i_end, j, j_end in steps:
        if kind == "equal":
            for old, new in zip(before.nodes[i:i_end], after.nodes[j:j_end], strict=True):
                differing = set(old.inputs) ^ set(new.inputs)
                rewired = bool(differing) and differing <= kept
                lines.append(Line((new,), Mark.REWIRED if rewired else Mark.SAME, int(rewired)))
        else:
            lines += [Line((node,), Mark.REMOVED, 1) for node in before.nodes[i:i_end]]
            lines += [Line((node,), Mark.ADDED, 1) for node in after.nodes[j:j_end]]
    return lines


def _annotated(lines: Sequence[Line]) -> Iterator[Line]:
    """The lines with notes, and each that begins a block with the block's name.

    What is as in the line above, of the same graph, goes without saying.
    """
    modules = {line.node.module for line in lines}
    outer = {m[:i] for m in modules for i, letter in enumerate(m) if letter == "."}
    block = ""
    above = dict.fromkeys((Mark.REMOVED, Mark.ADDED), ("", ""))  # name and shape, by graph
    for line in lines:
        module = line.node.module
        container = module if module in outer else module.rpartition(".")[0]
        name = block if line.summary else block_of(container, 2) or container
        caption, block = ("" if name in {block, ""} else name), name
        graphs = [line.mark] if line.mark in above and not line.summary else [*above]
        feeding, shape = above[graphs[-1]]
        note = "" if line.summary else _note(line.node, feeding, shape)
        above |= dict.fromkeys(graphs, (line.nodes[-1].name, line.nodes[-1].detail or shape))
        yield replace(line, note=note, caption=caption)


def _note(node: GraphNode, above: str, shape: str) -> str:
    distant = [name for name in node.inputs if name != above]
    shown = "" if node.detail == shape else node.detail.removesuffix(_USUAL)
    fed = f"from {', '.join(distant)}" if distant else ""
    return " ".join(part for part in (shown, fed) if part)


def block_of(module: str, depth: int) -> str:
    """A module's path down to its `depth`th numbered name, or the last one; empty without any."""
    names = module.split(".")
    numbered = [i for i, name in enumerate(names) if _NUMBERED.fullmatch(name)]
    return ".".join(names[: numbered[:depth][-1] + 1]) if numbered else ""


def condense(lines: Sequence[Line], *, most: int) -> list[Line]:
    """Fewer lines that tell the same.

    Args:
        lines: as merged.
        most: the number of lines from which on neighbours of one module are summed up: first those
            far from every change, by ever shorter paths, then the others too. A wrong node is
            always shown. Inputs and outputs are, too, so that there may be more lines yet.
    """
    for depth in (1, 2):
        lines = _without_repeats(lines, depth)
    condensed = list(lines)
    deepest = max((line.node.module.count(".") + 1 for line in lines), default=0)
    changed = [i for i, line in enumerate(lines) if line.changes]
    near = {place for i in changed for place in range(i - _CONTEXT, i + _CONTEXT + 1)}
    wrong = {i for i, line in enumerate(lines) if line.mark is Mark.WRONG}
    for kept in (near, wrong):
        for depth in range(deepest, -1, -1):
            if len(condensed) <= most:
                return condensed
            condensed = list(_by_module(lines, kept, depth))
    return condensed


def _without_repeats(lines: Sequence[Line], depth: int) -> list[Line]:
    """Of three or more equal blocks in succession the first stays; one line tells of the rest."""

    def name_of(line: Line) -> str:
        return "" if line.summary else block_of(line.node.module, depth)

    blocks = [(name, list(group)) for name, group in groupby(lines, key=name_of)]
    result: list[Line] = []
    for shape, run in groupby(blocks, key=lambda block: _shape(*block)):
        alike = list(run)
        if not shape or len(alike) < _FEWEST_REPEATS:
            result += [line for _, group in alike for line in group]
            continue
        (_, first), *rest = alike
        names = [name for name, _ in rest]
        summary = f"{len(rest)} more like it: {names[0]} to {names[-1].rpartition('.')[2]}"
        result += [*first, _summed([line for _, group in rest for line in group], summary)]
    return result


def _shape(name: str, lines: Sequence[Line]) -> tuple[object, ...]:
    """Equal for blocks that look the same: operators, marks, inner edges; empty: not a block."""
    if not name or len(lines) == 1:
        return ()
    index = {n.name: i for i, n in enumerate(n for line in lines for n in line.nodes)}
    form = (
        (line.node.operator, line.mark, tuple(index.get(name, -1) for name in line.node.inputs))
        for line in lines
    )
    return (name.rpartition(".")[0], *form)


def _summed(lines: Sequence[Line], summary: str) -> Line:
    """One line for several."""
    marks = {line.mark for line in lines} - {Mark.SAME}
    mark = Mark.MIXED if len(marks) > 1 else next(iter(marks), Mark.SAME)
    nodes = tuple(node for line in lines for node in line.nodes)
    return Line(nodes, mark, sum(line.changes for line in lines), summary)


def _by_module(lines: Sequence[Line], kept: Collection[int], depth: int) -> Iterator[Line]:
    """Neighbouring lines of one module become one, but for those to be kept.

    Args:
        lines: all of them, in order.
        kept: positions of those that stand for themselves; inputs and outputs do anyway.
        depth: how many names of a module's path count.
    """

    def module(entry: tuple[int, Line]) -> str | None:
        position, line = entry
        if position in kept or line.node.kind in _ENDS:
            return None
        return ".".join(line.node.module.split(".")[:depth])

    for name, group in groupby(enumerate(lines), key=module):
        members = [line for _, line in group]
        if name is None or len(members) == 1:
            yield from members
        else:
            changes = sum(line.changes for line in members)
            counted = f"{name}: " * bool(name)
            counted += f"{sum(len(line.nodes) for line in members)} operators"
            yield _summed(members, counted + f", {changes} changed" * bool(changes))
