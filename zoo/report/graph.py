"""A program's graph before and after the passes as one listing, like a text diff.

A node of both graphs is one line. Lines are grouped in one foldable block per module. A block is
folded at first if it resembles the block above or, in a large graph, if nothing in it changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import groupby

from menagerie.figures import count
from zoo.records import GraphNode, GraphRecord, NodeKind, ProgramGraphs

_LARGE = 300  # lines
_USUAL = " float32"  # the default, left out
_NUMBERED = re.compile(r"(?:\w*_)?\d+")  # `3` of `encoder.layers.3.norm`, or `layer_3`
_ENDS = {NodeKind.INPUT, NodeKind.OUTPUT}


class Mark(StrEnum):
    """The effect of the passes on a node."""

    SAME = "same"
    REMOVED = "removed"
    ADDED = "added"
    REWIRED = "rewired"  # kept, but with other inputs
    WRONG = "wrong"  # the first node that diverges from eager


_PHRASES = {Mark.WRONG: "first to diverge"}
_SIGNS = {Mark.REMOVED: "\N{MINUS SIGN}", Mark.ADDED: "+", Mark.REWIRED: "~", Mark.WRONG: "!"}


@dataclass(frozen=True)
class Line:
    """A node; `note` has its shape if that differs from the line above, and its other inputs."""

    node: GraphNode
    mark: Mark = Mark.SAME
    note: str = ""

    @property
    def tip(self) -> str:
        """The node's name, module, tensor and inputs."""
        node = self.node
        fed = "from " * bool(node.inputs) + ", ".join(node.inputs)
        return " · ".join(fact for fact in (node.name, node.module, node.detail, fed) if fact)

    @property
    def sign(self) -> str:
        """The mark as text, for readers who do not see colours."""
        return _SIGNS.get(self.mark, "")


@dataclass(frozen=True)
class Block:
    """Lines of one module (empty: the model); `alike`: only names differ from the block above."""

    module: str
    lines: tuple[Line, ...]
    folded: bool
    alike: bool

    @property
    def heading(self) -> str:
        """The summary that is shown while the block is folded."""
        changed = sum(line.mark is not Mark.SAME for line in self.lines)
        heading = count(len(self.lines), "operator") + f", {changed} changed" * bool(changed)
        return heading + ", as the block above" * self.alike


@dataclass(frozen=True)
class GraphListing:
    """Two graphs as blocks; `heading` counts their operators, `marks` are the marks in use."""

    program: str
    heading: str
    blocks: tuple[Block, ...]
    marks: tuple[tuple[str, str], ...]


def graph_listing(graphs: ProgramGraphs, *, wrong: str | None = None) -> GraphListing:
    """Return a program's graphs as one listing; a line in only one graph has a mark and a sign.

    `wrong` is the name of the first node that diverges from eager, which gets a mark.
    """
    lines = merge(graphs.before, graphs.after)
    # A node of both graphs is wrong after the passes.
    places = sorted(
        (line.mark is not Mark.REMOVED, i)
        for i, line in enumerate(lines)
        if line.node.name == wrong
    )
    for _, place in places[-1:]:
        lines[place] = replace(lines[place], mark=Mark.WRONG)
    marks = {line.mark for line in lines} - {Mark.SAME}
    before, after = (
        sum(node.kind not in _ENDS for node in record.nodes)
        for record in (graphs.before, graphs.after)
    )
    heading = f"{after} operators"
    if marks:
        heading = f"{before} operators before the passes, {after} after them"
    return GraphListing(
        program=graphs.program,
        heading=heading,
        blocks=tuple(_blocks(lines)),
        marks=tuple((_SIGNS[m], _PHRASES.get(m, m.value)) for m in Mark if m in marks),
    )


def merge(before: GraphRecord, after: GraphRecord) -> list[Line]:
    """Return the nodes of both graphs in order; name and operator identify a node."""
    left, right = ([(n.name, n.operator) for n in record.nodes] for record in (before, after))
    steps = SequenceMatcher(None, left, right, autojunk=False).get_opcodes()
    kept = {name for kind, *at, _, _ in steps if kind == "equal" for name, _ in left[slice(*at)]}
    lines: list[Line] = []
    for kind, i, i_end, j, j_end in steps:
        if kind == "equal":
            for old, new in zip(before.nodes[i:i_end], after.nodes[j:j_end], strict=True):
                differing = set(old.inputs) ^ set(new.inputs)
                rewired = bool(differing) and differing <= kept
                lines.append(Line(new, Mark.REWIRED if rewired else Mark.SAME))
        else:
            lines += [Line(node, Mark.REMOVED) for node in before.nodes[i:i_end]]
            lines += [Line(node, Mark.ADDED) for node in after.nodes[j:j_end]]
    return lines


def _blocks(lines: Sequence[Line]) -> Iterator[Block]:
    modules = {line.node.module for line in lines}
    outer = {m[:i] for m in modules for i, letter in enumerate(m) if letter == "."}

    def place(line: Line) -> tuple[str, bool]:
        module = line.node.module
        container = module if module in outer else module.rpartition(".")[0]
        return _block_of(container) or container, line.node.kind in _ENDS

    above: tuple[object, ...] = ()
    for (module, end), group in groupby(_annotated(lines), key=place):
        members = tuple(group)
        several, form = len(members) > 1, _form(members)
        alike = several and bool(module) and form == above
        quiet = several and not end and all(line.mark is Mark.SAME for line in members)
        yield Block(module, members, alike or (quiet and len(lines) > _LARGE), alike)
        above = form


def _form(lines: Sequence[Line]) -> tuple[object, ...]:
    """Return equal values for blocks that look the same: operators, marks, inner edges."""
    index = {line.node.name: i for i, line in enumerate(lines)}
    return tuple(
        (line.node.operator, line.mark, tuple(index.get(name, -1) for name in line.node.inputs))
        for line in lines
    )


def _annotated(lines: Sequence[Line]) -> Iterator[Line]:
    """Yield the lines with notes, which omit what equals the line above in the same graph."""
    above = dict.fromkeys((Mark.REMOVED, Mark.ADDED), ("", ""))  # name and shape, by graph
    for line in lines:
        graphs = [line.mark] if line.mark in above else [*above]
        feeding, shape = above[graphs[-1]]
        node = line.node
        distant = ", ".join(name for name in node.inputs if name != feeding)
        shown = "" if node.detail == shape else node.detail.removesuffix(_USUAL)
        yield replace(line, note=" ".join(filter(None, (shown, distant and f"from {distant}"))))
        above |= dict.fromkeys(graphs, (node.name, node.detail or shape))


def _block_of(module: str) -> str:
    """Return a module's path down to its second numbered name, or the only one; else empty."""
    names = module.split(".")
    numbered = [i for i, name in enumerate(names) if _NUMBERED.fullmatch(name)]
    return ".".join(names[: numbered[:2][-1] + 1]) if numbered else ""
