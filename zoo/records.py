"""What each stage of a conversion found out, as frozen records that travel between stages.

Filled in by transforms and `menagerie.validation`, kept in the bundle's report.json, drawn by
`zoo.report`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from pydantic import Field

from menagerie.validation.findings import Measurement, ValidationReport, Verdict
from zoo.base_models import Frozen


class Refusal(Frozen):
    """A place where a pass matched but would not rewrite, and why."""

    node: str
    reason: str


class PassRecord(Frozen):
    """What one pass did to one program."""

    name: str
    modified: bool
    nodes_before: int
    nodes_after: int
    changes: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    seconds: float = 0.0


class LayerCost(Frozen):
    """How far eager's results move when one layer's weights are rounded, all others whole.

    `result_snr_db` is of the layer's own result, from exact operands, `output_snr_db` of the
    program's output that moves most; None where the rounding was not followed so far.
    """

    parameter: str
    result_snr_db: float
    output_snr_db: float | None = None


class PassLog(Frozen):
    """Every pass that ran over a program, in order, and what rounding its weights costs."""

    program: str
    records: tuple[PassRecord, ...] = ()
    rounding: tuple[LayerCost, ...] = ()  # of a release in integers; the dearest first


def dearest(report: ConversionReport) -> str:
    """Name the layer whose rounding costs a wrong program most; empty if none was rounded.

    Where an accuracy gate alone failed, any program's.
    """
    wrong = [p.program for p in report.validation.programs if p.wrong_cases]
    logs = [log for log in report.passes if not wrong or log.program == wrong[0]]
    costs = [cost for log in logs for cost in log.rounding if cost.output_snr_db is not None]
    if not costs:
        return ""
    worst = min(costs, key=lambda cost: cost.output_snr_db or 0.0)
    return (
        f"Of all layers, rounding {worst.parameter} alone costs the outputs most: they keep "
        f"{worst.output_snr_db:.1f} dB"
    )


class NodeKind(StrEnum):
    """What a node is in the eyes of a reader; operators by what they cost or do."""

    INPUT = "input"
    OUTPUT = "output"
    HEAVY = "heavy"  # convolutions, matrix products, attention
    NORM = "norm"
    ACTIVATION = "activation"
    LAYOUT = "layout"  # moves elements, computes nothing
    OTHER = "other"


class GraphNode(Frozen):
    """One node of a graph; weights are not nodes here.

    `module` is the model's own path of the module it comes from, `detail` shape and dtype.
    """

    name: str
    operator: str
    kind: NodeKind
    inputs: tuple[str, ...] = ()
    module: str = ""
    detail: str = ""


class GraphRecord(Frozen):
    """The nodes of a graph, producers before their users."""

    nodes: tuple[GraphNode, ...]


class ProgramGraphs(Frozen):
    """A program's graph before and after the passes: what its picture is drawn of."""

    program: str
    before: GraphRecord
    after: GraphRecord


class LoweringRecord(Frozen):
    """What the target compiler made of a program."""

    program: str
    library_bytes: int
    symbols: tuple[str, ...]  # shim functions the library imports, sorted
    fallback_kernels: tuple[str, ...]  # those of them that compute, sorted
    generated_kernels: int  # loops Inductor wrote itself
    seconds: float


class DivergenceStage(StrEnum):
    """Between which two forms of a program the numbers part."""

    PASSES = "passes"  # a pass changed what eager computes
    LOWERING = "lowering"  # the target computes something else than eager


class Divergence(Frozen):
    """The first place where a program computes something else than eager PyTorch.

    `max_abs` is in the node's own units, `snr_db` in decibels; infinite where the run ended in an
    error. Unless `certain`, the time ran out: the fault is at this node or in what feeds it.
    """

    stage: DivergenceStage
    pass_name: str | None  # the first wrong pass; None in lowering
    node: str
    operator: str  # as torch names it, e.g. "aten.conv2d.default"
    module_path: str  # the model's own, empty where it is not known
    source_line: str  # `file:line`, empty where it is not known
    max_abs: float
    snr_db: float
    certain: bool = True
    reproducer: Path | None = None  # a folder with a small program that shows it

    @property
    def command(self) -> str:
        """What runs the reproducer again; empty where there is none."""
        if self.reproducer is None:
            return ""
        return f"python -m transforms.bisect {shlex.quote(str(self.reproducer))}"


class Diagnosis(Frozen):
    """What the search for the cause of a failed validation came to."""

    program: str = ""  # the one that diverges, when one was found
    case: int | None = None  # the golden case whose inputs show it
    divergence: Divergence | None = None
    detail: str = ""  # why there is no divergence


class StageTime(Frozen):
    """How long one stage took, in seconds."""

    stage: str
    seconds: float


class ConversionReport(Frozen):
    """All that is known of one conversion; report.json in the bundle, and what a person reads."""

    model: str
    summary: str
    target: str
    build_key: str
    source: str
    random_weights: int | None  # the seed, when weights are random
    licence: str
    parameters: int
    weights_bytes: int
    passes: tuple[PassLog, ...]
    lowering: tuple[LoweringRecord, ...]
    validation: ValidationReport
    diagnosis: Diagnosis | None = None  # of a validation that failed
    eager_latency: tuple[tuple[str, Measurement], ...] = ()  # by program, in turns with its own
    stages: tuple[StageTime, ...] = ()
    versions: dict[str, str] = Field(default_factory=dict)
    created: str = ""  # ISO 8601, UTC
    arguments: str = "--input x.npy --output y.npy"  # of `zoo run`, as an example

    @property
    def worst_abs(self) -> float | None:
        """The largest error of any output in any golden case; None without outputs."""
        errors = (o.max_abs for p in self.validation.programs for o in p.parity)
        return max(errors, default=None)

    @property
    def worst_snr_db(self) -> float | None:
        """The lowest SNR, infinite where all outputs are bit-equal; None without outputs."""
        ratios = (o.snr_db for p in self.validation.programs for o in p.parity)
        return min(ratios, default=None)


class FailureReport(Frozen):
    """All that is known of a conversion that ended before there was anything to validate.

    `place` is the node, file or program that the error names, `fact` what is wrong with it; `log`
    is the end of what the model's process said, `log_path` where the whole of it is.
    """

    model: str
    target: str
    outcome: str  # failed, crashed or timed out
    stage: str
    place: str
    fact: str
    next_step: str = ""
    summary: str = ""
    build_key: str | None = None
    random_weights: int | None = None
    stages: tuple[StageTime, ...] = ()  # those before the one that failed
    log: str = ""
    log_path: str = ""
    machine: str = ""
    created: str = ""  # ISO 8601, UTC


def with_latencies(
    validation: ValidationReport, measured: Iterable[tuple[str, Measurement]]
) -> ValidationReport:
    """Return a judgement with the latencies of programs that were measured elsewhere, by name."""
    times = dict(measured)
    programs = (replace(p, latency=times.get(p.program, p.latency)) for p in validation.programs)
    return replace(validation, programs=tuple(programs))


Suspected = tuple[str, int | None]  # a program, and the golden case that may show the fault


def suspected(validation: ValidationReport, programs: Sequence[str]) -> tuple[Suspected, ...]:
    """Return what to search, the likeliest first; nothing where a search would tell nothing.

    A program whose output was out of tolerance is tried with the first such golden case, a refuted
    one with what refuted it, whose numbers follow those of golden cases. One that was not judged,
    since the runtime refused it or crashed, is tried with all its cases. Where only the whole is
    wrong (two runs differ, say), every program is tried once.
    """
    if validation.passed or validation.verdict is Verdict.TIMED_OUT:
        return ()
    judged = {p.program: p for p in validation.programs}
    found = [
        (name, case)
        for name in programs
        for case in (judged[name].wrong_cases[:1] if name in judged else [None])
    ]
    return tuple(found) or tuple((name, 0) for name in programs)
