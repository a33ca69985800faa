"""Explains what the graph passes make of a model: what each changed, refused and why."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from transforms.pipeline import make_passes, passes_in
from zoo.base_models import Frozen
from zoo.precision import WeightPrecision
from zoo.records import PassRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.export import ExportedProgram

    from transforms.targets import PassItem, Target


class OperatorCount(Frozen):
    """How many calls of one operator there are before and after."""

    operator: str  # as torch names it, e.g. "aten.conv2d.default"
    before: int
    after: int


class PassExplanation(Frozen):
    """One pass over one program: its record, and the operators it made or removed."""

    summary: str  # e.g. "Replaces BatchNorm(Conv(x)) with Conv(x)"
    record: PassRecord
    operators: tuple[OperatorCount, ...]  # those whose number changed, largest change first


class ProgramExplanation(Frozen):
    """All passes over one program, in order."""

    program: str
    nodes_before: int
    nodes_after: int
    passes: tuple[PassExplanation, ...]
    operators: tuple[OperatorCount, ...]  # all of the program's, most frequent first


class Explanation(Frozen):
    """All programs of one model."""

    model: str
    target: str
    programs: tuple[ProgramExplanation, ...]


def explain_program(
    name: str,
    program: ExportedProgram,
    passes: Sequence[PassItem] | None = None,
    *,
    target: Target | str = "cpu",
) -> tuple[ExportedProgram, ProgramExplanation]:
    """Run the passes over one program and say what they did.

    Args:
        name: of the program.
        program: exported, before any pass; never changed.
        passes: as `run_passes` takes them; None for all of the target's.
        target: whose list to take.

    Returns:
        What became of the program, and why.

    Raises:
        UsageError: for a pass that does not exist or an option it does not take.
        PassError: if a pass broke its contract.
    """
    before, current = program, program
    steps = []
    for graph_pass in make_passes(
        passes_in(WeightPrecision(), None, target) if passes is None else passes
    ):
        rewritten, record = graph_pass(current, f"program {name}")
        steps.append(
            PassExplanation(
                summary=graph_pass.summary,
                record=record,
                operators=_changed(operator_counts(current, rewritten)),
            )
        )
        current = rewritten
    return current, ProgramExplanation(
        program=name,
        nodes_before=len(before.graph.nodes),
        nodes_after=len(current.graph.nodes),
        passes=tuple(steps),
        operators=operator_counts(before, current),
    )


def operator_counts(before: ExportedProgram, after: ExportedProgram) -> tuple[OperatorCount, ...]:
    """The calls of every operator in two programs, most frequent first, then by name."""
    left, right = _histogram(before), _histogram(after)
    counts = [
        OperatorCount(operator=name, before=left[name], after=right[name]) for name in left | right
    ]
    return tuple(sorted(counts, key=lambda c: (-max(c.before, c.after), c.operator)))


def _histogram(program: ExportedProgram) -> Counter[str]:
    return Counter(_operator(n.target) for n in program.graph.nodes if n.op == "call_function")


def _operator(target: Any) -> str:
    """An operator's own name; a Python function's (getitem, sym_size arithmetic) likewise."""
    return str(target) if hasattr(target, "_schema") else str(getattr(target, "__name__", target))


def _changed(counts: Sequence[OperatorCount]) -> tuple[OperatorCount, ...]:
    changed = [c for c in counts if c.before != c.after]
    return tuple(sorted(changed, key=lambda c: (-abs(c.after - c.before), c.operator)))
