"""The whole compiler before code generation: lists of passes, how they run and are explained.

A target defines its passes, their order and the reasons for it (`transforms/targets/`).
"""

from __future__ import annotations

import inspect
import pkgutil
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from pydantic import ValidationError
from torch.export import ExportedProgram

from transforms import passes as folder
from transforms.graph.editor import ProgramEditor
from transforms.graph.graph_pass import GraphPass, check_program
from transforms.graph.guards import dynamic_sizes_kept
from transforms.passes.canonical import (
    TRACE,
    TRACED,
    CallViews,
    CanonicalPass,
    KeepPlainState,
    LookUpTensorIndices,
    RoundToHalves,
    TakePlainInputs,
)
from transforms.passes.drop_assertions import DropAssertions
from transforms.passes.metal.move_to_device import MoveToDevice
from transforms.passes.quantisation import INTEGERS
from transforms.passes.round_weights import NarrowWeights, QuantiseWeights
from transforms.targets import PassItem, Target, target_named
from zoo.base_models import Frozen
from zoo.errors import LoweringError, UsageError
from zoo.precision import FLOATS, Precision, WeightPrecision
from zoo.records import PassLog, PassRecord
from zoo.spec import PassChoice

_CHOICE = "Give names, or {'name': 'fuse_cat_linear', 'options': {'gate': 'open'}}"
OF_PRECISIONS: tuple[type[GraphPass], ...] = (NarrowWeights, QuantiseWeights)
_PASSES_OF_EXPORT = (
    TakePlainInputs, CallViews, KeepPlainState, LookUpTensorIndices, DropAssertions, RoundToHalves,
)  # fmt: skip
_OF_EXPORT = {TRACE: TRACED, **{each.name: each.summary for each in _PASSES_OF_EXPORT}}


def _in_folder() -> tuple[type[GraphPass], ...]:
    """Return every pass that a model may choose, in the targets' order, then all others."""
    modules = [
        import_module(found.name)
        for found in pkgutil.walk_packages(folder.__path__, f"{folder.__name__}.")
    ]
    known: dict[Any, type[GraphPass]] = {
        each.name: each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, GraphPass)
        if each.__module__ == module.__name__
        if not issubclass(each, (*OF_PRECISIONS, CanonicalPass, MoveToDevice))
    }
    listed = [item for name in ("cpu", "metal") for item in target_named(name).passes]
    order = dict.fromkeys([name for name in listed if name in known] + sorted(known))
    return tuple(known[name] for name in order)


_PASSES = _in_folder()


def available_passes() -> dict[str, type[GraphPass]]:
    """Return by name every pass that changes results by the order of sums at most."""
    return {p.name: p for p in _PASSES}


def passes_over(
    program: ExportedProgram, passes: Sequence[GraphPass], *, name: str = "main"
) -> Iterator[tuple[GraphPass, PassRecord, ExportedProgram]]:
    """Run passes over one copy of a program, which is checked after each of them.

    Yield each pass, its record and the program after it, whose graph the next pass changes. Raise
    PassError if a pass breaks its contract, and LoweringError if the program needs what the target
    lacks, or if a pass fixes a dynamic size.
    """
    place, modified = f"program {name}", False
    check_program(program, "before the passes")
    with dynamic_sizes_kept(place, program):
        editor = ProgramEditor(program, place)
        for graph_pass in passes:
            record = graph_pass.run(editor)
            modified |= record.modified
            yield graph_pass, record, editor.program if modified else program


def run_passes(
    program: ExportedProgram,
    passes: Sequence[PassItem] | None = None,
    *,
    target: Target | str = "cpu",
    name: str = "main",
) -> tuple[ExportedProgram, PassLog]:
    """Run passes (None for all of the target's) over a copy of a program; see `passes_over`."""
    made = make_passes(passes_in(FLOATS, None, target) if passes is None else passes)
    records, result = [], program
    for _, record, result in passes_over(program, made, name=name):  # noqa: B007
        records.append(record)
    return result, PassLog(program=name, records=tuple(records))


def make_passes(passes: Sequence[PassItem]) -> list[GraphPass]:
    """Make passes by name, in order; raise UsageError for an unknown pass or option."""
    return [_make(item) for item in passes]


def passes_in(
    kept: WeightPrecision, passes: Sequence[PassItem] | None, target: Target | str
) -> tuple[PassItem, ...]:
    """Return the whole list: the model's or target's passes, the precision's, then the device's.

    Raise UsageError if the target cannot compute in the precision.
    """
    target = target_named(target)
    chosen = target.general_passes if passes is None else passes
    return (*chosen, *rounding_passes(kept, target), *target.device_passes)


def rounding_passes(kept: WeightPrecision, target: Target) -> tuple[PassChoice, ...]:
    """Return the precision's pass, if it has one; UsageError if the target lacks the precision."""
    precision = kept.precision
    if (refusal := target.refusal(precision)) is not None:
        raise refusal
    if precision is Precision.FLOAT32:
        return ()
    if precision not in INTEGERS:
        return (PassChoice(name=NarrowWeights.name, options={"dtype": precision.value}),)
    options: dict[str, str | int] = {"precision": precision.value}
    if kept.keep:
        options["keep"] = " ".join(kept.keep)
    if kept.group is not None:
        options["group"] = kept.group
    return (PassChoice(name=QuantiseWeights.name, options=options),)


def _make(item: PassItem) -> GraphPass:
    try:
        choice = PassChoice.model_validate({"name": item} if isinstance(item, str) else item)
    except ValidationError:
        raise UsageError("passes", f"{item!r} is no pass", _CHOICE) from None
    known = {each.name: each for each in (*_PASSES, *OF_PRECISIONS)}
    if choice.name not in known:
        raise UsageError(
            "passes", f"there is no pass {choice.name!r}", f"Known: {', '.join(known)}"
        )
    options = inspect.signature(known[choice.name]).parameters
    for option, value in choice.options.items():
        if option not in options:
            takes = f"It takes: {', '.join(options)}" if options else "It takes none"
            raise UsageError(f"pass {choice.name}", f"has no option {option!r}", takes)
        default = options[option].default
        if type(default) in {int, str} and type(value) is not type(default):
            fact = f"option {option!r} cannot be {value!r}"
            raise UsageError(f"pass {choice.name}", fact, f"Its default is {default!r}")
    made: GraphPass = known[choice.name](**choice.options)
    made.options = choice.options
    return made


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
    dispatches: dict[str, int]  # kernels that a run launches on a device, by kind
    refusal: str  # why it cannot be lowered for the device; empty if it can


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
    exported: Sequence[PassRecord] = (),
) -> tuple[ExportedProgram, ProgramExplanation]:
    """Describe what each pass does: export's by their records, then the list's and lowering's."""
    made = make_passes(passes_in(FLOATS, None, target) if passes is None else passes)
    made += target_named(target).lowering_passes()
    first = before = _histogram(program)
    steps = [PassExplanation(summary=_OF_EXPORT[r.name], record=r, operators=()) for r in exported]
    result = program
    for graph_pass, record, result in passes_over(program, made, name=name):
        after = _histogram(result)
        counts = (c for c in _counts(before, after) if c.before != c.after)
        changed = tuple(sorted(counts, key=lambda c: (-abs(c.after - c.before), c.operator)))
        steps.append(PassExplanation(summary=graph_pass.summary, record=record, operators=changed))
        before = after
    dispatches, refusal = dict[str, int](), ""
    try:
        dispatches |= target_named(target).dispatches(result, name)
    except LoweringError as error:
        refusal = str(error)
    return result, ProgramExplanation(
        program=name, passes=tuple(steps), operators=_counts(first, before),
        nodes_before=steps[0].record.nodes_before if steps else len(program.graph.nodes),
        nodes_after=len(result.graph.nodes), dispatches=dispatches, refusal=refusal,
    )  # fmt: skip


def _counts(before: Counter[str], after: Counter[str]) -> tuple[OperatorCount, ...]:
    names = before | after
    counts = [OperatorCount(operator=n, before=before[n], after=after[n]) for n in names]
    return tuple(sorted(counts, key=lambda c: (-max(c.before, c.after), c.operator)))


def _histogram(program: ExportedProgram) -> Counter[str]:
    called: list[Any] = [n.target for n in program.graph.nodes if n.op == "call_function"]
    # Python functions, such as getitem, have plain names.
    return Counter(str(t if hasattr(t, "_schema") else getattr(t, "__name__", t)) for t in called)
