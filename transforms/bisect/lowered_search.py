"""Finds the node that a target computes wrongly, and a small program that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transforms.bisect.pieces import (
    MOST_PIECES,
    Difference,
    Piece,
    Tolerances,
    comparable,
    difference,
    divergence_at,
    extract,
    grown,
    is_probe,
    with_outputs,
)
from transforms.graph.interpret import capture, output_nodes
from zoo.errors import LoweringError, MenagerieError
from zoo.records import Divergence, DivergenceStage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch
    from torch.export import ExportedProgram
    from torch.fx import Node

    from transforms.bisect.pieces import Deadline, Runner

_PROBES = 8  # inner nodes looked at in one lowering
_CRASHED = Difference(float("inf"), float("-inf"), passed=False)


class LoweredSearch:
    """The search for the node that the target computes wrongly.

    Where the deadline ends it early, it makes do with the last node that was seen to be wrong.
    """

    def __init__(
        self,
        program: ExportedProgram,
        inputs: Sequence[torch.Tensor],
        run: Runner,
        tolerances: Tolerances,
        deadline: Deadline,
    ) -> None:
        self._program = program
        self._inputs = inputs
        self._run = run
        self._tolerances = tolerances
        self._deadline = deadline
        self._order = {n: i for i, n in enumerate(program.graph.nodes)}

    def locate(self) -> tuple[Divergence, Piece] | None:
        """The divergence and the smallest piece that shows it, or None."""
        outputs = [n for n in output_nodes(self._program) if is_probe(n)]
        judged = self._judge(self._program, outputs)
        wrong = [n for n in self._sorted(judged) if not judged[n].passed]
        if not wrong:
            return None
        node, distance, certain = self._narrow(wrong[0], judged)
        piece, suspect, alone = self._shrink(node)
        divergence = divergence_at(DivergenceStage.LOWERING, suspect, alone or distance)
        return divergence.model_copy(update={"certain": certain}), piece

    def _sorted(self, nodes: Any) -> list[Node]:
        return sorted(nodes, key=self._order.__getitem__)

    def _judge(self, program: ExportedProgram, nodes: Sequence[Node]) -> dict[Node, Difference]:
        """How far the target is from eager at `nodes`, which are `program`'s outputs."""
        names = [n.name for n in nodes]
        positions = [n.name for n in output_nodes(program)]
        expected = capture(self._program, self._inputs, names)
        try:
            results = self._run(program, self._inputs)
        except LoweringError:
            raise
        except MenagerieError:
            return dict.fromkeys(nodes, _CRASHED)
        return {
            n: difference(expected[n.name], results[positions.index(n.name)], self._tolerances)
            for n in nodes
        }

    def _narrow(
        self, wrong: Node, judged: Mapping[Node, Difference]
    ) -> tuple[Node, Difference, bool]:
        """The first wrong node among the producers of a wrong node; False: the time was up."""
        distance = judged[wrong]
        good = {n for n, seen in judged.items() if seen.passed}
        while candidates := self._suspects(wrong, good):
            if self._deadline.passed:
                return wrong, distance, False
            probes = _spread(candidates, _PROBES)
            judged = self._judge(with_outputs(self._program, [n.name for n in probes]), probes)
            good |= {n for n in probes if judged[n].passed}
            failed = [n for n in probes if not judged[n].passed]
            if failed:
                wrong, distance = failed[0], judged[failed[0]]
        return wrong, distance, True

    def _suspects(self, wrong: Node, good: set[Node]) -> list[Node]:
        """The producers of a wrong node that no right node clears, in graph order.

        When none is left, those that feed it directly and were not looked at themselves: a node in
        between can hide a fault (a normalisation hides a wrong scale).
        """
        cleared = set(good)
        for node in good:
            behind = _producers(node)
            if wrong not in behind:  # else the fault was masked on the way, and it clears none
                cleared |= behind
        suspects = {n for n in _producers(wrong) - cleared if is_probe(n)}
        return self._sorted(suspects or _nearest_probes(wrong) - good)

    def _shrink(self, node: Node) -> tuple[Piece, Node, Difference | None]:
        """The smallest piece ending in `node` that is wrong, and the node to blame in it."""
        found = grown(
            self._program,
            self._inputs,
            [node],
            around=lambda each: each.all_input_nodes,
            wrong=self._wrong,
            deadline=self._deadline,
        )
        if found is None:
            whole = with_outputs(self._program, [node.name])
            return Piece(whole, tuple(self._inputs)), node, None
        piece, chosen, distance = found
        for candidate in [n for n in chosen if n is not node][:MOST_PIECES]:
            if self._deadline.passed:  # those nearest to the input are dropped first
                break
            fewer = [n for n in chosen if n is not candidate]
            smaller = extract(self._program, {n.name for n in fewer}, self._inputs)
            seen = self._wrong(smaller)
            if seen is not None:
                chosen, piece, distance = fewer, smaller, seen
        return piece, chosen[0] if len(chosen) == 1 else node, distance

    def _wrong(self, piece: Piece) -> Difference | None:
        """How wrong a piece is, lowered alone, on eager's values; None: it is not."""
        names = [n.name for n in output_nodes(piece.program)]
        expected = capture(piece.program, piece.inputs, names)
        try:
            results = self._run(piece.program, piece.inputs)
        except LoweringError:
            return None  # a piece may be one that the compiler does not take
        except MenagerieError:
            return _CRASHED
        seen = [
            difference(expected[name], result, self._tolerances)
            for name, result in zip(names, results, strict=True)
            if comparable(expected[name])
        ]
        return next((d for d in reversed(seen) if not d.passed), None)


def _producers(node: Node) -> set[Node]:
    """Everything that `node` is computed from."""
    found: set[Node] = set()
    queue = [node]
    while queue:
        for source in queue.pop().all_input_nodes:
            if source not in found:
                found.add(source)
                queue.append(source)
    return found


def _nearest_probes(node: Node) -> set[Node]:
    """The probes that feed `node`, directly or through other nodes (tuples, integers)."""
    found: set[Node] = set()
    for source in node.all_input_nodes:
        found |= {source} if is_probe(source) else _nearest_probes(source)
    return found


def _spread(nodes: Sequence[Node], count: int) -> list[Node]:
    """At most `count` of `nodes`, evenly spaced; all when they are few."""
    if len(nodes) <= count:
        return list(nodes)
    return [nodes[(i + 1) * len(nodes) // (count + 1)] for i in range(count)]
