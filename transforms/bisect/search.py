"""The search as a whole: first through the passes, then through the lowered program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.bisect.comparing import Tolerances, default_tolerances
from transforms.bisect.deadline import Deadline
from transforms.bisect.lowered_search import LoweredSearch
from transforms.bisect.pass_search import compare_programs, smallest_for_pass
from transforms.bisect.piece import runner
from transforms.bisect.reproducer import Origin, save
from transforms.pipeline import make_passes
from transforms.targets import target_named
from zoo.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    import torch
    from torch.export import ExportedProgram

    from transforms.bisect.cutting import Piece
    from transforms.bisect.divergence import Runner
    from transforms.graph.graph_pass import GraphPass, PassOptions
    from transforms.targets import Target
    from zoo.records import Divergence

__all__ = ["locate"]


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
        found = compare_programs(original, rewritten, inputs, tolerances)
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
