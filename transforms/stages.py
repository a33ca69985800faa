"""The core of every conversion, in order: export, passes, lowering, proof, verdict, seal.

`convert()`, the tasks of a flow and the search for a fault (`transforms.bisect`) call these
functions; their differences (progress, retries, Prefect's states, where reports go) are handled
there. Functions import the modules that need torch themselves, since a proof runs where torch is
not installed.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from menagerie.figures import count, printable
from menagerie.format.bundle_manifest import BundleManifest, ReleaseState
from menagerie.validation import Limits, validate
from menagerie.validation.findings import Measurement, ValidationReport
from zoo.base_models import Frozen
from zoo.bundle_differences import reseal
from zoo.errors import explain
from zoo.precision import Precision
from zoo.progress import in_parts, report_step
from zoo.records import (
    ConversionReport,
    Diagnosis,
    LayerCost,
    LoweringRecord,
    PassLog,
    PassRecord,
    ProgramGraphs,
    StageTime,
    with_latencies,
)
from zoo.report.files import run_arguments, write_report

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from transforms.eager import Gate, SpeechParts
    from transforms.export.prepare import Prepared
    from transforms.passes.quantisation import Call, Range
    from transforms.targets import Identity, Settings


T = TypeVar("T")
_LOWERED = 0.9  # share of a lowering stage; the bundle is written and timed in the rest
_LONGEST_STEP = 200  # characters
_CHECKS = 4  # per program, besides its golden cases: steps of `menagerie.validation`


class Stage(StrEnum):
    """The stages of a conversion, in their order; `locate` only after a failed validation."""

    PULL = "pull"
    EXPORT = "export"
    TRANSFORM = "transform"
    LOWER = "lower"
    VALIDATE = "validate"
    LOCATE = "locate"
    PUBLISH = "publish"


class TransformRecord(Frozen):
    """Every pass has run over every program."""

    passes: tuple[PassLog, ...]
    graphs: tuple[ProgramGraphs, ...] = ()


class LowerRecord(Frozen):
    """The bundle is written and sealed as `lowered`.

    The latencies, by program, were measured in turns; none where this machine only emulates the
    target's device, or the artifact could not be run.
    """

    lowering: tuple[LoweringRecord, ...]
    artifact_latency: tuple[tuple[str, Measurement], ...] = ()
    eager_latency: tuple[tuple[str, Measurement], ...]
    weights_bytes: int


def export(programs: Iterable[T], prepare: Callable[[T], Prepared]) -> tuple[Prepared, ...]:
    """Export programs and make their golden cases, one after another, by `prepare`."""
    made = []
    for program in in_parts(programs):
        made.append(prepare(program))
        cases = count(len(made[-1].goldens), "golden case")
        report_step(f"program {made[-1].name}: exported, {cases}")
    return tuple(made)


def transform(
    programs: Iterable[Prepared],
    settings: Settings,
    *,
    calibration: Mapping[str, Iterable[Call]] | None = None,
) -> tuple[tuple[Prepared, ...], TransformRecord]:
    """Run the graph passes over every program, and round weights to a precision.

    `calibration` has, for `int8-static`, samples of the inputs of each program, by its name. Raise
    UsageError for an unknown pass or option, a precision that the target does not support, or a
    parameter to keep that does not exist; PassError if a pass breaks its contract; LoweringError if
    a program needs what the target lacks; ExportError if two programs have a buffer in common that
    one of them writes.
    """
    from transforms.export.prepare import refuse_shared_state
    from transforms.graph.record import record_graph

    done, logs, graphs = [], [], []
    refuse_shared_state(programs := tuple(programs))
    names = [each.program.state_dict for each in programs]
    for prepared in in_parts(programs):
        kept = settings.kept.within(prepared.program.state_dict, names)
        samples = (calibration or {}).get(prepared.name, ())
        after, log, ranges = _rewritten(prepared, replace(settings, kept=kept), samples)
        done.append(replace(prepared, program=after, operand_ranges=ranges))
        logs.append(log)
        first, last = map(record_graph, (prepared.program, after))
        graphs.append(ProgramGraphs(program=prepared.name, before=first, after=last))
        report_step(f"program {prepared.name}: rewritten by {len(log.records)} passes")
    return tuple(done), TransformRecord(passes=tuple(logs), graphs=tuple(graphs))


def _rewritten(
    prepared: Prepared, settings: Settings, calibration: Iterable[Call]
) -> tuple[ExportedProgram, PassLog, dict[str, Range]]:
    """Run the whole list; if it rounds weights, also return the costs and the operands' ranges."""
    from transforms.passes.quantisation import fitting_calls, operand_ranges, rounding_costs
    from transforms.pipeline import OF_PRECISIONS, make_passes, passes_in, passes_over

    name, kept = prepared.name, settings.kept
    inputs = list(prepared.goldens[0].inputs.values())
    after = before = prepared.program
    records: list[PassRecord] = []
    costs: tuple[LayerCost, ...] = ()
    ranges: dict[str, Range] = {}
    made = make_passes(passes_in(kept, settings.passes, settings.target))
    for graph_pass, record, after in passes_over(before, made, name=name):
        records.append(record)
        if isinstance(graph_pass, OF_PRECISIONS) and kept.precision is not Precision.FLOAT32:
            calls = fitting_calls(f"program {name}", calibration, inputs)
            ranges = operand_ranges(before, after, calls)
            integers = kept.precision.multiplies_integers
            costs = rounding_costs(before, after, inputs, integers=integers, ranges=ranges)
        before = after
    exported = (record for record in prepared.passes if record.modified)
    log = PassLog(program=name, records=(*exported, *records), rounding=costs)
    return after, log, ranges


def lower(
    folder: Path,
    identity: Identity,
    programs: Sequence[Prepared],
    settings: Settings,
    *,
    gate: Gate | None = None,
    speech: SpeechParts | None = None,
) -> LowerRecord:
    """Lower programs, write and time their bundle, which stores equal weights once.

    Raise LoweringError or its subclass UnsupportedKernels, see `Target.lower`.
    """
    from transforms.bundle import write_bundle
    from transforms.eager import measure_beside_eager

    target, made = settings.target, []
    for each in in_parts(programs, end=_LOWERED):
        made.append(target.lower(each.program, folder, name=each.name))
        kernels = count(made[-1].record.generated_kernels, "kernel")
        report_step(f"program {each.name}: {kernels} compiled")
    manifest = write_bundle(folder, identity, programs, made, settings, gate=gate, speech=speech)
    artifacts, eager = measure_beside_eager(
        folder, programs, target, threads=settings.threads, seconds=settings.seconds
    )
    return LowerRecord(
        lowering=tuple(each.record for each in made), artifact_latency=artifacts,
        eager_latency=eager, weights_bytes=manifest.weights.bytes,
    )  # fmt: skip


# The bundle is not signed yet, since the signer first checks this verdict.
run_goldens = functools.partial(validate, allow_unsigned=True)


def prove(
    bundle: Path,
    draft: BundleManifest,
    identity: Identity,
    transformed: TransformRecord,
    lowered: LowerRecord,
    *,
    limits: Limits,
    stages: Callable[[], Sequence[StageTime]] = tuple,
    judge: Callable[..., ValidationReport] = run_goldens,
) -> ConversionReport:
    """Run the bundle in a fresh process without torch, and assemble its report.

    The bundle is sealed as `lowered` and is not changed; `draft` is its manifest, read before it
    runs. It is not timed again if `lowered` has latencies. `stages` returns the times once the run
    is over; `judge` is replaced in tests.
    """
    limits = replace(limits, measure_seconds=0.0) if lowered.artifact_latency else limits
    checks = sum(each.golden_cases + _CHECKS for each in draft.programs)
    done = itertools.count(1)
    judged = judge(
        bundle,
        limits=limits,
        # It comes from the process that the artifact runs in, so its text is not trusted.
        progress=lambda place: report_step(
            printable(place)[:_LONGEST_STEP], min(1.0, next(done) / checks)
        ),
    )
    validation = with_latencies(judged, lowered.artifact_latency)
    return ConversionReport(
        model=identity.model, summary=identity.summary, target=identity.target.name,
        build_key=identity.build_key, source=identity.source,
        random_weights=identity.random_weights, licence=identity.licence,
        parameters=identity.parameters, weights_bytes=lowered.weights_bytes,
        passes=transformed.passes, lowering=lowered.lowering, validation=validation,
        eager_latency=lowered.eager_latency, stages=tuple(stages()), versions=draft.versions,
        arguments=run_arguments(bundle, draft),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip


def located(report: ConversionReport, search: Callable[[], Diagnosis]) -> ConversionReport:
    """Add a search's diagnosis to a failed proof's report; a failed search keeps the verdict."""
    try:
        diagnosis = search()
    except Exception as error:  # noqa: BLE001 - whatever it is, the verdict is kept
        why = explain(error, report.model)
        diagnosis = Diagnosis(detail=f"The search for the cause ended early: {why}")
    return report.model_copy(update={"diagnosis": diagnosis})


def seal(
    bundle: Path, draft: BundleManifest, report: ConversionReport, graphs: Sequence[ProgramGraphs]
) -> BundleManifest:
    """Put the report into a bundle that passed, and seal it in the state that was proven.

    That is `validated`, or `emulated` if this host emulates the target's device. Golden outputs
    that are large relative to the weights are reduced to samples. `draft` is the manifest read
    before the bundle ran, since a run may write into its folder. Raise ArtifactError if a file of
    the bundle changed while it ran.
    """
    from transforms.bundle import keep_samples

    write_report(report, bundle, graphs=graphs)
    emulated = report.validation.emulated
    state = ReleaseState.EMULATED if emulated else ReleaseState.VALIDATED
    return keep_samples(bundle, reseal(bundle, draft, state))
