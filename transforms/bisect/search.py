"""The search as a whole: first through the passes, then through the lowered program."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

from transforms.bisect.lowered_search import LoweredSearch
from transforms.bisect.pieces import (
    Deadline,
    Difference,
    Piece,
    Tolerances,
    comparable,
    default_tolerances,
    difference,
    divergence_at,
    grown,
    is_probe,
)
from transforms.bisect.reproducer import Origin, runner, save
from transforms.graph.interpret import capture, output_nodes
from transforms.pipeline import make_passes, passes_in
from transforms.targets import target_named
from zoo.errors import MenagerieError, UsageError
from zoo.precision import FLOATS, WeightPrecision
from zoo.records import Diagnosis, Divergence, DivergenceStage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
    tolerances: Tolerances = default_tolerances,
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
    found = _search(
        program,
        passes,
        inputs,
        run=run or runner(target),
        device={p.name for p in make_passes(target_named(target).device_passes)},
        tolerances=tolerances,
        deadline=Deadline(seconds),
    )
    if found is None:
        return None
    divergence, piece, options = found
    if folder is None:
        return divergence
    return save(folder, piece, divergence, Origin(str(target), options), tolerances)


def _search(
    program: ExportedProgram,
    passes: Sequence[GraphPass],
    inputs: Sequence[torch.Tensor],
    *,
    run: Runner,
    device: Collection[str],
    tolerances: Tolerances,
    deadline: Deadline,
) -> tuple[Divergence, Piece, PassOptions] | None:
    """`device` names the passes that `run` makes again of each piece, before it lowers it."""
    original = lowered = program
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
            piece = smallest_for_pass(
                program, rewritten, graph_pass, inputs, tolerances, deadline=deadline
            )
            found = found.model_copy(update={"pass_name": graph_pass.name})
            return found, piece, graph_pass.options
        program = rewritten
        lowered = lowered if graph_pass.name in device else program
    deadline.check("the lowered program ran")
    located = LoweredSearch(lowered, inputs, run, tolerances, deadline).locate()
    return None if located is None else (*located, {})


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
