"""The graph passes there are, and running them; a target says which it takes, and in what order."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from transforms.graph.check import check_program
from transforms.passes.decompose_linear import DecomposeLinear
from transforms.passes.decompose_stft import DecomposeStft
from transforms.passes.fold_batch_norm import FoldBatchNorm
from transforms.passes.fold_constants import FoldConstants
from transforms.passes.fuse_addmm import FuseAddmm
from transforms.passes.fuse_cat_linear import FuseCatLinear
from transforms.passes.merge_common_subexpressions import MergeCommonSubexpressions
from transforms.passes.narrow_weights import NarrowWeights
from transforms.passes.pointwise_affine_to_conv import PointwiseAffineToConv
from transforms.passes.quantise_weights import QuantiseWeights
from transforms.passes.remove_dead_code import RemoveDeadCode
from transforms.passes.remove_identity_permutes import RemoveIdentityPermutes
from transforms.passes.replace_view_copies import ReplaceViewCopies
from transforms.passes.unpad_relative_shift import UnpadRelativeShift
from transforms.quantised import INTEGERS
from transforms.targets import Target, target_named
from zoo.errors import UsageError
from zoo.precision import Kept, Precision
from zoo.records import PassLog
from zoo.spec import PassChoice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.export import ExportedProgram

    from transforms.graph.graph_pass import GraphPass

__all__ = ["available_passes", "chosen_passes", "make_passes", "passes_in", "run_passes"]

_PASSES: tuple[type[GraphPass], ...] = (
    DecomposeStft,
    ReplaceViewCopies,
    UnpadRelativeShift,
    FoldBatchNorm,
    FoldConstants,
    MergeCommonSubexpressions,
    PointwiseAffineToConv,
    FuseCatLinear,
    RemoveIdentityPermutes,
    FuseAddmm,
    DecomposeLinear,
    RemoveDeadCode,
)


def available_passes() -> dict[str, type[GraphPass]]:
    """Every pass by its name that changes no result but by the order of its sums."""
    return {p.name: p for p in _PASSES}


def run_passes(
    program: ExportedProgram,
    passes: Sequence[str | PassChoice] | None = None,
    *,
    target: Target | str = "cpu",
    name: str = "main",
) -> tuple[ExportedProgram, PassLog]:
    """Run graph passes over a program.

    Args:
        program: any ExportedProgram; never changed.
        passes: names or choices with options, in order; None for the target's default list.
        target: whose default list to take.
        name: the program's name in the log.

    Returns:
        The rewritten program and what each pass did to it.

    Raises:
        UsageError: for a pass that does not exist or an option it does not take.
        PassError: if a pass broke its contract.
    """
    check_program(program, "before the passes")
    records = []
    for graph_pass in make_passes(passes, target=target):
        program, record = graph_pass(program)
        records.append(record)
    return program, PassLog(program=name, records=tuple(records))


def make_passes(
    passes: Sequence[str | PassChoice] | None = None, *, target: Target | str = "cpu"
) -> list[GraphPass]:
    """The passes by name, in order; None for the target's default list.

    Raises:
        UsageError: for a pass that does not exist or an option it does not take.
    """
    return [_make(p) for p in chosen_passes(passes, target)]


def chosen_passes(
    passes: Sequence[str | PassChoice] | None, target: Target | str
) -> Sequence[str | PassChoice]:
    """The passes asked for; None for the target's default list."""
    return target_named(target).passes if passes is None else passes


def passes_in(
    kept: Kept, passes: Sequence[str | PassChoice] | None, target: Target | str
) -> Sequence[str | PassChoice] | None:
    """The same passes, and after them what a precision asks for: folded weights are the last.

    Args:
        kept: how weights will be kept.
        passes: None for the target's own list.
        target: what the program is lowered for.

    Raises:
        UsageError: the target cannot compute in the precision.
    """
    precision = kept.precision
    target_named(target).require(precision)
    if precision is Precision.FLOAT32:
        return passes
    if precision in INTEGERS:
        options: dict[str, str | int] = {"precision": precision.value}
        if kept.keep:
            options["keep"] = " ".join(kept.keep)
        if kept.group is not None:
            options["group"] = kept.group
        last = PassChoice(name=QuantiseWeights.name, options=options)
    else:
        last = PassChoice(name=NarrowWeights.name, options={"dtype": precision.value})
    return (*chosen_passes(passes, target), last)


def _make(choice: str | PassChoice) -> GraphPass:
    choice = PassChoice(name=choice) if isinstance(choice, str) else choice
    of_precisions = {each.name: each for each in (NarrowWeights, QuantiseWeights)}
    known: dict[str, type[GraphPass]] = {**available_passes(), **of_precisions}
    if choice.name not in known:
        raise UsageError(
            "passes", f"there is no pass {choice.name!r}", f"Known: {', '.join(known)}"
        )
    options = inspect.signature(known[choice.name]).parameters
    for option in choice.options:
        if option not in options:
            takes = f"It takes: {', '.join(options)}" if options else "It takes none"
            raise UsageError(f"pass {choice.name}", f"has no option {option!r}", takes)
    made = known[choice.name](**choice.options)
    made.options = choice.options
    return made
