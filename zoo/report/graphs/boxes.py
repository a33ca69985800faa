"""Condenses a graph for the eye: straight chains become one box, repeated blocks are told once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING

from zoo.records import GraphNode, GraphRecord, NodeKind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

__all__ = ["Box", "Mark", "Row", "condense", "mark_changes"]

_ROWS = 6  # of a box, on the average; with more of them a picture is as large as with more boxes
_LONGEST_RUN = 5  # unchanged rows of a box in a row
_FEWEST_REPEATS = 3
_UNIT = re.compile(r"(?:^|.*?\.)\d+(?=\.|$)")  # `encoder.layers.3` of `encoder.layers.3.norm`


class Mark(StrEnum):
    """What became of a node."""

    SAME = "same"
    REMOVED = "removed"
    ADDED = "added"
    REWIRED = "rewired"  # still there, fed by other nodes than before
    WRONG = "wrong"  # the first to diverge from eager


@dataclass(frozen=True)
class Row:
    """One operator of a box, or a summary of several."""

    text: str
    kind: NodeKind
    mark: Mark = Mark.SAME
    detail: str = ""
    tip: str = ""
    summary: bool = False


@dataclass(frozen=True)
class Box:
    """Operators that follow each other without a branch. `inputs` are indices of boxes."""

    rows: tuple[Row, ...]
    inputs: tuple[int, ...]
    caption: str = ""

    @property
    def kind(self) -> NodeKind:
        """The kind of its first row."""
        return self.rows[0].kind

    @property
    def changed(self) -> bool:
        """Whether a row of it is marked."""
        return any(row.mark is not Mark.SAME for row in self.rows)


@dataclass
class _Item:
    """One or several neighbouring nodes on the way to becoming part of a box."""

    nodes: list[GraphNode]
    label: str = ""  # set where several nodes are told as one


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


def condense(record: GraphRecord, marks: Mapping[str, Mark], *, most: int = 120) -> tuple[Box, ...]:
    """The boxes of a graph, producers before users.

    Args:
        record: the graph.
        marks: of each node by name.
        most: the number of boxes from which on neighbours of one module are told as one: first
            those far from every change, by ever shorter paths, then the others too. A wrong node
            is always drawn.
    """
    items = _without_repeats([_Item([n]) for n in record.nodes], marks)
    boxes = _chained(items, marks)
    deepest = max((n.module.count(".") + 1 for n in record.nodes), default=0)
    for kept in (_near(items, marks), _wrong(items, marks)):
        for depth in range(deepest, -1, -1):
            if len(boxes) <= most and sum(len(box.rows) for box in boxes) <= _ROWS * most:
                return boxes
            boxes = _chained(_by_module(items, kept, depth, marks), marks)
    return boxes


# Repeated blocks


def _without_repeats(items: list[_Item], marks: Mapping[str, Mark]) -> list[_Item]:
    """Of three or more equal blocks in a row only the first is kept; one item tells of the rest."""
    units = [
        (unit, list(group)) for unit, group in groupby(items, key=lambda item: _unit(item.nodes[0]))
    ]
    shapes = [_shape(unit, group, marks) for unit, group in units]
    result: list[_Item] = []
    position = 0
    while position < len(units):
        end = position + 1
        while end < len(units) and shapes[position] and shapes[end] == shapes[position]:
            end += 1
        if end - position < _FEWEST_REPEATS:
            end = position + 1
        result += units[position][1]
        rest = [item for _, group in units[position + 1 : end] for item in group]
        if rest:
            span = _span([unit for unit, _ in units[position + 1 : end]])
            label = f"{end - position - 1} more like it: {span}"
            result.append(_Item([n for item in rest for n in item.nodes], label))
        position = end
    return result


def _unit(node: GraphNode) -> str:
    match = _UNIT.match(node.module)
    return match.group() if match else ""


def _shape(unit: str, group: Sequence[_Item], marks: Mapping[str, Mark]) -> tuple[object, ...]:
    """Equal for blocks that look the same: operators, marks, inner edges; empty: not a block."""
    if not unit or len(group) == 1:
        return ()
    nodes = [n for item in group for n in item.nodes]
    index = {n.name: i for i, n in enumerate(nodes)}
    return (
        unit.rpartition(".")[0],
        *((n.operator, marks[n.name], tuple(index.get(i, -1) for i in n.inputs)) for n in nodes),
    )


def _span(units: Sequence[str]) -> str:
    first, last = units[0], units[-1]
    return first if first == last else f"{first} to {last.rpartition('.')[2]}"


# Large graphs


def _by_module(
    items: Sequence[_Item], kept: Collection[int], depth: int, marks: Mapping[str, Mark]
) -> list[_Item]:
    """Neighbouring items of one module are told as one, but for those to be kept.

    Neighbours in the order of the graph can be merged without making a cycle.

    Args:
        items: all of them, in order.
        kept: positions of those that stand for themselves; inputs and outputs do anyway.
        depth: how many names of a module's path count.
        marks: of each node by name.
    """

    def outline(entry: tuple[int, _Item]) -> str | None:
        position, item = entry
        if position in kept or item.nodes[0].kind in {NodeKind.INPUT, NodeKind.OUTPUT}:
            return None
        return ".".join(item.nodes[0].module.split(".")[:depth])

    result: list[_Item] = []
    for module, group in groupby(enumerate(items), key=outline):
        members = [item for _, item in group]
        if module is None or len(members) == 1:
            result += members
        else:
            result.append(_merged(members, module, marks))
    return result


def _merged(members: Sequence[_Item], module: str, marks: Mapping[str, Mark]) -> _Item:
    nodes = [n for item in members for n in item.nodes]
    changes = sum(marks[n.name] is not Mark.SAME for n in nodes)
    place = f"{module}: " if module else ""
    more = f", {changes} changed" if changes else ""
    return _Item(nodes, f"{place}{len(nodes)} operators{more}")


def _near(items: Sequence[_Item], marks: Mapping[str, Mark]) -> set[int]:
    """Items that are changed, or feed or use one that is."""
    owner = {n.name: i for i, item in enumerate(items) for n in item.nodes}
    changed = {owner[name] for name, mark in marks.items() if mark is not Mark.SAME}
    edges = [
        (owner[i], position)
        for position, item in enumerate(items)
        for n in item.nodes
        for i in n.inputs
        if i in owner
    ]
    around = {a for a, b in edges if b in changed} | {b for a, b in edges if a in changed}
    return changed | around


def _wrong(items: Sequence[_Item], marks: Mapping[str, Mark]) -> set[int]:
    return {i for i, item in enumerate(items) if marks[item.nodes[0].name] is Mark.WRONG}


# Chains


def _chained(items: Sequence[_Item], marks: Mapping[str, Mark]) -> tuple[Box, ...]:
    owner = {n.name: i for i, item in enumerate(items) for n in item.nodes}
    inputs = [
        sorted({owner[i] for n in item.nodes for i in n.inputs if i in owner} - {position})
        for position, item in enumerate(items)
    ]
    users: list[set[int]] = [set() for _ in items]
    for position, sources in enumerate(inputs):
        for source in sources:
            users[source].add(position)
    box_of: dict[int, int] = {}
    members: list[list[int]] = []
    for position in range(len(items)):
        source = inputs[position][0] if len(inputs[position]) == 1 else -1
        if source >= 0 and len(users[source]) == 1 and _joins(items, source, position):
            box_of[position] = box_of[source]
            members[box_of[source]].append(position)
        else:
            box_of[position] = len(members)
            members.append([position])
    return tuple(
        Box(
            rows=_shortened([row for p in group for row in _rows(items[p], marks)]),
            inputs=tuple(sorted({box_of[i] for i in inputs[group[0]]})),
            caption=_caption([n for p in group for n in items[p].nodes]),
        )
        for group in members
    )


def _joins(items: Sequence[_Item], source: int, position: int) -> bool:
    """Whether two neighbours may share a box: operators only, and of one block."""
    left, right = items[source], items[position]
    ends = {NodeKind.INPUT, NodeKind.OUTPUT}
    if left.label or right.label or {left.nodes[0].kind, right.nodes[0].kind} & ends:
        return False
    return _unit(left.nodes[0]) == _unit(right.nodes[0])


def _rows(item: _Item, marks: Mapping[str, Mark]) -> list[Row]:
    if item.label:
        seen = {marks[n.name] for n in item.nodes} - {Mark.SAME}
        mark = next(iter(sorted(seen)), Mark.SAME)
        return [Row(item.label, NodeKind.OTHER, mark, summary=True)]
    node = item.nodes[0]
    facts = (node.name, node.module, node.detail)
    return [
        Row(
            node.operator,
            node.kind,
            marks[node.name],
            node.detail,
            tip=" · ".join(f for f in facts if f),
        )
    ]


def _shortened(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Of a long run of unchanged rows the first and last two are kept."""
    result: list[Row] = []
    for mark, group in groupby(rows, key=lambda row: row.mark):
        run = list(group)
        if mark is Mark.SAME and len(run) > _LONGEST_RUN:
            middle = Row(f"{len(run) - 4} more", NodeKind.OTHER, summary=True)
            run = [*run[:2], middle, *run[-2:]]
        result += run
    return tuple(result)


def _caption(nodes: Sequence[GraphNode]) -> str:
    """The module that all nodes share, as far down as they share it."""
    paths = [n.module.split(".") if n.module else [] for n in nodes]
    shared = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared)
