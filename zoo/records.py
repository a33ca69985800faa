"""Results of each stage of a conversion, as frozen records that are passed between stages.

They are filled in by transforms and `menagerie.validation`, stored in the bundle's report.json,
and drawn by `zoo.report`.
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
    """A place where a pass matched but refused to rewrite, and the reason."""

    node: str
    reason: str


class PassRecord(Frozen):
    """The effect of one pass on one program."""

    name: str
    modified: bool
    nodes_before: int
    nodes_after: int
    changes: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    seconds: float = 0.0


class LayerCost(Frozen):
    """The change of eager's results when only one layer's weights are rounded.

    `result_snr_db` is the SNR of the layer's own result, from exact operands, `output_snr_db` that
    of the program's output that changes most; None if the rounding was not followed that far.
    """

    parameter: str
    result_snr_db: float
    output_snr_db: float | None = None


class PassLog(Frozen):
    """Every pass that ran over a program, in order, and the cost of rounding its weights."""

    program: str
    records: tuple[PassRecord, ...] = ()
    rounding: tuple[LayerCost, ...] = ()  # in an integer release; most costly first


def dearest(report: ConversionReport) -> str:
    """Return the layer whose rounding costs a wrong program most; empty if none was rounded.

    If only an accuracy gate failed, the layer may be in any program.
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
    """The kind of a node, for readers; operators are classified by cost or purpose."""

    INPUT = "input"
    OUTPUT = "output"
    HEAVY = "heavy"  # convolutions, matrix products, attention
    NORM = "norm"
    ACTIVATION = "activation"
    LAYOUT = "layout"  # moves elements without computing
    OTHER = "other"


class GraphNode(Frozen):
    """One node of a graph; weights are not nodes.

    `module` is the path, in the model, of the module it comes from; `detail` is shape and dtype.
    """

    name: str
    operator: str
    kind: NodeKind
    inputs: tuple[str, ...] = ()
    module: str = ""
    detail: str = ""


class GraphRecord(Frozen):
    """The nodes of a graph in topological order."""

    nodes: tuple[GraphNode, ...]


class ProgramGraphs(Frozen):
    """A program's graph before and after the passes, from which it is drawn."""

    program: str
    before: GraphRecord
    after: GraphRecord


class LoweringRecord(Frozen):
    """The result of the target compiler for a program."""

    program: str
    library_bytes: int
    symbols: tuple[str, ...]  # shim functions that the library imports, sorted
    fallback_kernels: tuple[str, ...]  # the shim functions that compute, sorted
    generated_kernels: int  # loops that Inductor generated
    seconds: float


class DivergenceStage(StrEnum):
    """The stage at which a program's numbers diverge."""

    PASSES = "passes"  # a pass changed what eager computes
    LOWERING = "lowering"  # the target's result differs from eager's


class Divergence(Frozen):
    """The first place where a program's result differs from eager PyTorch's.

    `max_abs` is in the node's own units, `snr_db` in decibels; both are infinite if the run ended
    in an error. Unless `certain`, the time ran out: the fault is at this node or before it.
    """

    stage: DivergenceStage
    pass_name: str | None  # the first wrong pass; None in lowering
    node: str
    operator: str  # torch's name, e.g. "aten.conv2d.default"
    module_path: str  # in the model; empty if unknown
    source_line: str  # `file:line`; empty if unknown
    max_abs: float
    snr_db: float
    certain: bool = True
    reproducer: Path | None = None  # folder of a small program with the fault

    @property
    def command(self) -> str:
        """The command that runs the reproducer; empty without one."""
        if self.reproducer is None:
            return ""
        return f"python -m transforms.bisect {shlex.quote(str(self.reproducer))}"


class Diagnosis(Frozen):
    """The result of the search for the cause of a failed validation."""

    program: str = ""  # the diverging program, if one was found
    case: int | None = None  # the golden case that shows the divergence
    divergence: Divergence | None = None
    detail: str = ""  # why no divergence was found


class StageTime(Frozen):
    """The duration of one stage, in seconds."""

    stage: str
    seconds: float


class ConversionReport(Frozen):
    """Everything known about one conversion: the bundle's report.json, which pages show."""

    model: str
    summary: str
    target: str
    build_key: str
    source: str
    random_weights: int | None  # the seed, if weights are random
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
        """The lowest SNR, infinite if all outputs are bit-equal; None without outputs."""
        ratios = (o.snr_db for p in self.validation.programs for o in p.parity)
        return min(ratios, default=None)


class FailureReport(Frozen):
    """Everything known about a conversion that failed before there was anything to validate.

    `place` is the node, file or program that the error names, and `fact` is its fault. `log` is the
    end of the log of the model's process, and `log_path` is the whole log's path.
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
    stages: tuple[StageTime, ...] = ()  # stages before the one that failed
    log: str = ""
    log_path: str = ""
    machine: str = ""
    created: str = ""  # ISO 8601, UTC


def with_latencies(
    validation: ValidationReport, measured: Iterable[tuple[str, Measurement]]
) -> ValidationReport:
    """Return a validation with latencies, by program, that were measured elsewhere."""
    times = dict(measured)
    programs = (replace(p, latency=times.get(p.program, p.latency)) for p in validation.programs)
    return replace(validation, programs=tuple(programs))


Suspected = tuple[str, int | None]  # a program, and the golden case that may show the fault


def suspected(validation: ValidationReport, programs: Sequence[str]) -> tuple[Suspected, ...]:
    """Return the programs and cases to search, likeliest first; empty if a search is pointless.

    A program whose output was out of tolerance is tried with the first such golden case. A refuted
    one is tried with the case that refuted it, numbered after the golden cases. One that was not
    judged, because the runtime refused it or crashed, is tried with all its cases. If the fault is
    not in one program (e.g. two runs differ), every program is tried once.
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
