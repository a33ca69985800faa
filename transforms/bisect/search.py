"""The search as a whole: first through the passes, then through the lowered program."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from transforms.bisect.comparing import Tolerances, default_tolerances
from transforms.bisect.lowered_search import LoweredSearch
from transforms.bisect.pass_search import compare_programs, smallest_for_pass
from transforms.bisect.reproducer import save
from zoo.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import torch
    from torch.export import ExportedProgram

    from transforms.base import GraphPass
    from transforms.bisect.cutting import Piece
    from transforms.bisect.divergence import Divergence, Runner

__all__ = ["locate"]


def locate(
    program: ExportedProgram,
    passes: Sequence[GraphPass],
    inputs: Sequence[torch.Tensor],
    run: Runner,
    *,
    tolerances: Tolerances = default_tolerances,
    folder: Path | None = None,
) -> Divergence | None:
    """Find the first divergence from eager.

    First each pass is applied and the result interpreted in eager PyTorch: a pass after which an
    output is out of tolerance is the culprit. If none is, inner nodes of the program are made
    outputs, several in one lowering, and the search narrows to the first node that is wrong though
    what feeds it is right. Since more outputs change what is fused, the node is then lowered alone,
    and with more and more of its producers, until the fault shows in a piece as small as may be.

    Args:
        program: before the passes, in functional form.
        passes: those applied before lowering, in order.
        inputs: a tensor for each input, in order.
        run: lowers and runs a program on the target. A MenagerieError from it, other than a
            LoweringError, counts as a wrong result: a crash is located like a wrong number.
        tolerances: when two tensors are equal, by dtype.
        folder: an empty or missing folder for the reproducer; left out: none is saved.

    Returns:
        The divergence, or None when every output is as eager's.

    Raises:
        UsageError: if `folder` holds files already.
        LoweringError: if the program, or a part of it, cannot be lowered at all.
    """
    if folder is not None and folder.is_dir() and any(folder.iterdir()):
        raise UsageError(str(folder), "is not empty", "Name a new folder for the reproducer")
    found = _search(program, passes, inputs, run, tolerances)
    if found is None:
        return None
    divergence, piece = found
    if folder is None:
        return divergence
    save(folder, piece, divergence, tolerances)
    return replace(divergence, reproducer=folder)


def _search(
    program: ExportedProgram,
    passes: Sequence[GraphPass],
    inputs: Sequence[torch.Tensor],
    run: Runner,
    tolerances: Tolerances,
) -> tuple[Divergence, Piece] | None:
    original = program
    for graph_pass in passes:
        rewritten, _ = graph_pass(program)
        found = compare_programs(original, rewritten, inputs, tolerances)
        if found is not None:
            # Against the program just before, only this pass's own nodes differ.
            found = compare_programs(program, rewritten, inputs, tolerances) or found
            piece = smallest_for_pass(program, rewritten, graph_pass, inputs, tolerances)
            return replace(found, pass_name=graph_pass.name), piece
        program = rewritten
    return LoweredSearch(program, inputs, run, tolerances).locate()
