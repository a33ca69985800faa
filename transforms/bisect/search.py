"""Finds where a result goes wrong: first among the passes, then in the lowered program."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any

from menagerie.numerics import DEFAULT_TOLERANCES
from transforms.bisect.pieces import (
    MOST_PIECES,
    Deadline,
    Difference,
    Piece,
    Tolerances,
    comparable,
    difference,
    differences,
    divergence_at,
    extract,
    grown,
    is_probe,
    with_outputs,
)
from transforms.bisect.reproducer import runner, save
from transforms.graph.interpret import capture, output_nodes
from transforms.pipeline import make_passes, passes_in
from transforms.targets import target_named
from zoo.errors import LoweringError, MenagerieError, UsageError
from zoo.precision import FLOATS, WeightPrecision
from zoo.records import Diagnosis, Divergence, DivergenceStage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    import torch
    from torch.export import ExportedProgram
    from torch.fx import Node

    from menagerie.numerics import Dtype, Tolerance
    from transforms.bisect.pieces import Runner
    from transforms.export.prepare import Prepared
    from transforms.graph.graph_pass import GraphPass, PassOptions
    from transforms.targets import PassItem, Target
    from zoo.records import Suspected


def locate(
    program: ExportedProgram,
    passes: Sequence[GraphPass],
    inputs: Sequence[torch.Tensor],
    *,
    target: Target | str = "cpu",
    run: Runner | None = None,
    tolerances: Tolerances = DEFAULT_TOLERANCES.get,
    folder: Path | None = None,
    seconds: float | None = None,
) -> Divergence | None:
    """Find the first divergence from eager.

    First each pass is applied and the result interpreted in eager PyTorch: a pass after which an
    output is out of tolerance is the culprit. If none is, inner nodes of the program are made
    outputs, several in one lowering, and the search narrows to the first node that is wrong though
    what feeds it is right. Since more outputs change what is fused, the node is then lowered alone,
    and with more and more of its producers, until the fault shows in a piece as small as may be.

    Args:
        program: before the passes, in functional form.
        passes: all of them, those for the device among them, in order.
        inputs: a tensor for each input, in order.
        target: where the program runs.
        run: lowers and runs a program there; left out: as the target does. A MenagerieError from
            it, other than a LoweringError, counts as a wrong result: a crash is located like a
            wrong number.
        tolerances: when two tensors are equal, by dtype.
        folder: an empty or missing folder for the reproducer; left out: none is saved.
        seconds: after so many the search ends with what it knows, once the lowering under way is
            done: the divergence is then not `certain`, its reproducer larger than it might be.

    Returns:
        The divergence, or None when every output is as eager's.

    Raises:
        UsageError: if `folder` holds files already.
        LoweringError: if the program, or a part of it, cannot be lowered at all.
        MenagerieError: if the time was up before anything was known.
    """
    if folder is not None and folder.is_dir() and any(folder.iterdir()):
        raise UsageError(str(folder), "is not empty", "Name a new folder for the reproducer")
    target = target_named(target)
    run, deadline = run or runner(target), Deadline(seconds)
    # `run` makes these passes again of each piece, before it lowers it.
    device = {p.name for p in make_passes(target.device_passes)}
    original = lowered = program
    found: Divergence | None = None
    options: PassOptions = {}
    for graph_pass in passes:
        deadline.check(f"pass {graph_pass.name} was looked at")
        rewritten, _ = graph_pass(program)
        try:
            found = compare_programs(original, rewritten, inputs, tolerances)
        except RuntimeError:  # eager lacks a fused call of half precision on older processors
            if graph_pass.name not in device:
                raise
            break
        if found is not None:
            # Against the program just before, only this pass's own nodes differ.
            found = compare_programs(program, rewritten, inputs, tolerances) or found
            found = found.model_copy(update={"pass_name": graph_pass.name})
            options = graph_pass.options
            piece = smallest_for_pass(
                program, rewritten, graph_pass, inputs, tolerances, deadline=deadline
            )
            break
        program = rewritten
        lowered = lowered if graph_pass.name in device else program
    if found is None:
        deadline.check("the lowered program ran")
        located = LoweredSearch(lowered, inputs, run, tolerances, deadline).locate()
        if located is None:
            return None
        found, piece = located
    if folder is None:
        return found
    return save(folder, piece, found, target=str(target), options=options, tolerances=tolerances)


_NOTHING_FOUND = (
    "Lowered and run by itself, each suspected program agrees with eager: the fault is in the "
    "bundle, in how often or beside what it is run, or in inputs that were not tried"
)

_NOT_AFTER_A_RESET = (
    "{} keeps state, and what was searched, its first call after a reset, agrees with eager: the "
    "fault shows in later calls, in what is kept. Return the new state beside the results to have "
    "it compared"
)


def diagnose(
    programs: Mapping[str, Prepared],
    suspects: Iterable[Suspected],
    passes: Sequence[PassItem] | None,
    *,
    target: Target,
    kept: WeightPrecision = FLOATS,
    tolerances: Callable[[Dtype], Tolerance | None],
    folder: Path,
    seconds: float,
) -> Diagnosis:
    """Search the suspected programs for the first node that computes something else than eager.

    Args:
        programs: by name, before the passes.
        suspects: programs and golden cases that may show the fault, the likeliest first; no case
            means any of them. Of a program that keeps state only the first call of a run can be
            searched.
        passes: as `transforms.stages.transform` took them.
        target: where the program is wrong.
        kept: how its weights are kept.
        tolerances: by which it is.
        folder: for the smallest program that shows the fault; missing or empty.
        seconds: for the whole search.
    """
    end, later = time.monotonic() + seconds, list[str]()
    whole = make_passes(passes_in(kept, passes, target))
    for name, case in suspects:
        program = programs[name]
        for number in range(len(program.goldens)) if case is None else (case,):
            if number % program.calls:
                later.append(f"program {name}")
                continue
            found = locate(
                program.exported.program,
                whole,
                list(program.goldens[number].inputs.values()),
                target=target,
                tolerances=tolerances,
                folder=folder,
                seconds=end - time.monotonic(),
            )
            if found is not None:
                return Diagnosis(program=name, case=number, divergence=found)
    if later:
        return Diagnosis(detail=_NOT_AFTER_A_RESET.format(later[0]))
    return Diagnosis(detail=_NOTHING_FOUND)


def compare_programs(
    before: ExportedProgram,
    after: ExportedProgram,
    inputs: Sequence[torch.Tensor],
    tolerances: Tolerances,
) -> Divergence | None:
    """The first node of `after` that is wrong, if an output is."""
    outputs = zip(output_nodes(before), output_nodes(after), strict=True)
    wrong = _wrong(before, after, list(outputs), inputs, tolerances)
    if not wrong:
        return None
    known = {n.name: n for n in before.graph.nodes if is_probe(n)}
    shared = [(known[n.name], n) for n in after.graph.nodes if n.name in known and is_probe(n)]
    alike = [(old, new) for old, new in shared if old.target == new.target]
    if inner := _wrong(before, after, alike, inputs, tolerances):
        wrong = inner
    node, distance = wrong[0]
    fresh = [n for n in node.all_input_nodes if n.name not in known and is_probe(n)]
    blamed = fresh[-1] if inner and fresh else node  # a new node that feeds one of before
    return divergence_at(DivergenceStage.PASSES, blamed, distance)


def _wrong(
    before: ExportedProgram,
    after: ExportedProgram,
    pairs: Sequence[tuple[Node, Node]],
    inputs: Sequence[torch.Tensor],
    tolerances: Tolerances,
) -> list[tuple[Node, Difference]]:
    """Those nodes of `after` that are not as the ones they are paired with, in order."""
    expected = capture(before, inputs, [left.name for left, _ in pairs])
    actual = capture(after, inputs, [right.name for _, right in pairs])
    seen = [
        (right, difference(expected[left.name], actual[right.name], tolerances))
        for left, right in pairs
        if comparable(expected[left.name])
    ]
    return [(node, distance) for node, distance in seen if not distance.passed]


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
    calls = [n for n in before.graph.nodes if n.op == "call_function"]
    gone = [n for n in calls if n.name not in kept]
    found = grown(
        before,
        inputs,
        gone or [n for n in calls if not _is_same(n, kept[n.name])],
        around=lambda each: (*each.all_input_nodes, *each.users),
        wrong=functools.partial(_wrong_after, graph_pass, tolerances),
        deadline=deadline,
    )
    return Piece(before, tuple(inputs)) if found is None else found[0]


def _is_same(before: Node, after: Node) -> bool:
    return after.target == before.target and str(after.args) == str(before.args)


def _wrong_after(graph_pass: GraphPass, tolerances: Tolerances, piece: Piece) -> Divergence | None:
    try:
        rewritten, _ = graph_pass(piece.program)
    except MenagerieError:
        return None
    return compare_programs(piece.program, rewritten, piece.inputs, tolerances)


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
        found = self._judge(Piece(self._program, tuple(self._inputs)))
        outputs = [n for n in output_nodes(self._program) if is_probe(n)]
        judged = {n: found[n.name] for n in outputs}
        wrong = [n for n in self._sorted(judged) if not judged[n].passed]
        if not wrong:
            return None
        node, distance, certain = self._narrow(wrong[0], judged)
        piece, suspect, alone = self._shrink(node)
        divergence = divergence_at(DivergenceStage.LOWERING, suspect, alone or distance)
        return divergence.model_copy(update={"certain": certain}), piece

    def _sorted(self, nodes: Any) -> list[Node]:
        return sorted(nodes, key=self._order.__getitem__)

    def _judge(self, piece: Piece) -> dict[str, Difference]:
        """How far the target is from eager at a program's outputs, by name."""
        names = [n.name for n in output_nodes(piece.program)]
        expected = capture(piece.program, piece.inputs, names)
        try:
            results = self._run(piece.program, piece.inputs)
        except LoweringError:
            raise
        except MenagerieError:
            return dict.fromkeys(names, _CRASHED)
        wanted = [expected[name] for name in names]
        return differences(names, wanted, results, self._tolerances)

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
            cut = with_outputs(self._program, [n.name for n in probes])
            found = self._judge(Piece(cut, tuple(self._inputs)))
            judged = {n: found[n.name] for n in probes}
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
        try:
            judged = self._judge(piece)
        except LoweringError:
            return None  # a piece may be one that the compiler does not take
        return next((d for d in reversed(judged.values()) if not d.passed), None)


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
