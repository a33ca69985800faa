"""Finds what a graph pass made wrong: the node, and a small program that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.bisect.comparing import (
    Difference,
    Tolerances,
    comparable,
    difference,
    divergence_at,
    is_probe,
)
from transforms.bisect.cutting import Piece, extract
from transforms.graph.interpret import capture, output_nodes
from zoo.errors import MenagerieError
from zoo.records import Divergence, DivergenceStage

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch.export import ExportedProgram
    from torch.fx import Node

    from transforms.bisect.comparing import Deadline
    from transforms.graph.graph_pass import GraphPass

_MOST_ROUNDS = 12  # of growing a piece


def compare_programs(
    before: ExportedProgram,
    after: ExportedProgram,
    inputs: Sequence[torch.Tensor],
    tolerances: Tolerances,
) -> Divergence | None:
    """The first node of `after` that is wrong, if an output is."""
    pairs = list(zip(output_nodes(before), output_nodes(after), strict=True))
    expected = capture(before, inputs, [left.name for left, _ in pairs])
    actual = capture(after, inputs, [right.name for _, right in pairs])
    wrong = [
        (right, distance)
        for left, right in pairs
        if comparable(expected[left.name])
        and not (distance := difference(expected[left.name], actual[right.name], tolerances)).passed
    ]
    if not wrong:
        return None
    node, distance = _first_wrong(before, after, inputs, tolerances) or wrong[0]
    return divergence_at(DivergenceStage.PASSES, node, distance)


def _first_wrong(
    before: ExportedProgram,
    after: ExportedProgram,
    inputs: Sequence[torch.Tensor],
    tolerances: Tolerances,
) -> tuple[Node, Difference] | None:
    """The first node that both programs have and that is wrong, or the new node that feeds it."""
    known = {n.name: n for n in before.graph.nodes if is_probe(n)}
    shared = [
        n
        for n in after.graph.nodes
        if n.name in known and n.target == known[n.name].target and is_probe(n)
    ]
    expected = capture(before, inputs, [n.name for n in shared])
    actual = capture(after, inputs, [n.name for n in shared])
    for node in shared:
        distance = difference(expected[node.name], actual[node.name], tolerances)
        if not distance.passed:
            fresh = [n for n in node.all_input_nodes if n.name not in known and is_probe(n)]
            return (fresh[-1] if fresh else node), distance
    return None


def smallest_for_pass(
    before: ExportedProgram,
    after: ExportedProgram,
    graph_pass: GraphPass,
    inputs: Sequence[torch.Tensor],
    tolerances: Tolerances,
    *,
    deadline: Deadline,
) -> Piece:
    """A small part of `before` that the pass makes wrong; all of it where none is found in time."""
    kept = {n.name: n for n in after.graph.nodes}
    calls = _calls(before)
    gone = [n for n in calls if n.name not in kept]
    chosen = dict.fromkeys(gone or [n for n in calls if not _is_same(n, kept[n.name])])
    for _ in range(_MOST_ROUNDS):
        if not chosen or deadline.passed:
            break
        piece = extract(before, {n.name for n in chosen}, inputs)
        if _goes_wrong(piece, graph_pass, tolerances):
            return piece
        around = [m for n in chosen for m in (*n.all_input_nodes, *n.users)]
        grown = dict.fromkeys([*chosen, *(m for m in around if m.op == "call_function")])
        if len(grown) == len(chosen):
            break
        chosen = grown
    return Piece(before, tuple(inputs))


def _is_same(before: Node, after: Node) -> bool:
    return after.target == before.target and str(after.args) == str(before.args)


def _goes_wrong(piece: Piece, graph_pass: GraphPass, tolerances: Tolerances) -> bool:
    try:
        rewritten, _ = graph_pass(piece.program)
    except MenagerieError:
        return False
    found = compare_programs(piece.program, rewritten, piece.inputs, tolerances)
    return found is not None


def _calls(program: ExportedProgram) -> list[Node]:
    return [n for n in program.graph.nodes if n.op == "call_function"]
