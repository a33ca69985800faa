"""What each stage of a conversion found out, as frozen records that travel between stages.

Filled in by transforms and runtime, kept in the bundle's report.json, drawn by `zoo.report`.
"""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from zoo.spec import Dtype, Tolerance

__all__ = [
    "AccuracyResult",
    "Bound",
    "CaseShape",
    "ConversionReport",
    "Diagnosis",
    "Divergence",
    "DivergenceStage",
    "ErrorHistogram",
    "GraphNode",
    "GraphRecord",
    "LoweringRecord",
    "Measurement",
    "NodeKind",
    "OutputParity",
    "PassLog",
    "PassRecord",
    "ProgramGraphs",
    "ProgramValidation",
    "Refusal",
    "StageTime",
    "ValidationReport",
    "Verdict",
]


class _Record(BaseModel):
    # JSON has no infinity: as strings they survive the round trip and every other reader
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Refusal(_Record):
    """A place where a pass matched but would not rewrite, and why."""

    node: str
    reason: str


class PassRecord(_Record):
    """What one pass did to one program."""

    name: str
    modified: bool
    nodes_before: int
    nodes_after: int
    changes: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    seconds: float = 0.0


class PassLog(_Record):
    """Every pass that ran over a program, in order."""

    program: str
    records: tuple[PassRecord, ...] = ()


class NodeKind(StrEnum):
    """What a node is in the eyes of a reader; operators by what they cost or do."""

    INPUT = "input"
    OUTPUT = "output"
    HEAVY = "heavy"  # convolutions, matrix products, attention
    NORM = "norm"
    ACTIVATION = "activation"
    LAYOUT = "layout"  # moves elements, computes nothing
    OTHER = "other"


class GraphNode(_Record):
    """One node of a graph; weights are not nodes here.

    `module` is the model's own path of the module it comes from, `detail` shape and dtype.
    """

    name: str
    operator: str
    kind: NodeKind
    inputs: tuple[str, ...] = ()
    module: str = ""
    detail: str = ""


class GraphRecord(_Record):
    """The nodes of a graph, producers before their users."""

    nodes: tuple[GraphNode, ...]


class ProgramGraphs(_Record):
    """A program's graph before and after the passes: what its picture is drawn of."""

    program: str
    before: GraphRecord
    after: GraphRecord


class LoweringRecord(_Record):
    """What the target compiler made of a program."""

    program: str
    library_bytes: int
    symbols: tuple[str, ...]  # shim functions the library imports, sorted
    fallback_kernels: tuple[str, ...]  # those of them that compute, sorted
    generated_kernels: int  # loops Inductor wrote itself
    seconds: float


class ErrorHistogram(_Record):
    """How many elements err by how much: |out - ref| of the finite ones, by half decades.

    `exact` elements are equal; `counts[i]` lie in [10^((first+i)/2), 10^((first+i+1)/2)), in the
    output's own units.
    """

    exact: int
    first: int
    counts: tuple[int, ...]


class Bound(StrEnum):
    """What an output passed by; see `zoo.spec.Tolerance`."""

    BITS = "bits"  # every one is eager's
    ABSOLUTE = "absolute"
    SNR = "snr"


class OutputParity(_Record):
    """One output of one golden case against eager.

    `snr_db` is 20 log10(|ref|2 / |ref - out|2), infinite where both are bit-equal; `max_rel` is
    max(|a-b| / max(|ref|)), so that zeros in the reference do not make it meaningless. `scale` is
    the largest finite |ref|, by which `tolerance` is measured. Reports of older versions have
    neither `scale` nor `passed_by`.
    """

    case: int
    output: str
    dtype: Dtype
    shape: tuple[int, ...]
    max_abs: float
    max_rel: float
    snr_db: float
    cosine: float
    nonfinite_match: bool
    tolerance: Tolerance | None
    passed: bool
    passed_by: Bound | None = None
    scale: float | None = None
    fact: str = ""  # what is wrong, when not passed
    errors: ErrorHistogram | None = None

    @property
    def allowed(self) -> float | None:
        """The largest error that passes whatever the SNR; None where every bit must be eager's."""
        if self.tolerance is None:
            return None
        return self.tolerance.everywhere(1.0 if self.scale is None else self.scale)


class CaseShape(_Record):
    """The sizes that the dynamic dimensions took in one golden case."""

    case: int
    dimensions: dict[str, int]


class Measurement(_Record):
    """Repeated timings in milliseconds.

    `processor_ms` is the mean time that the process's threads computed in a call; unlike wall time
    it leaves out waiting for a core, so one-thread figures compare even on a busy machine.
    """

    minimum_ms: float
    median_ms: float
    p90_ms: float
    runs: int
    threads: int
    case: int | None = None  # the golden case whose inputs were timed
    processor_ms: float | None = None


class ProgramValidation(_Record):
    """One program's golden cases, determinism and speed in the fresh process."""

    program: str
    cases: tuple[CaseShape, ...]
    parity: tuple[OutputParity, ...]
    deterministic: bool
    latency: Measurement | None
    passed: bool


class AccuracyResult(_Record):
    """Top-1 accuracy of eager and of the artifact on the gate's samples, as fractions."""

    samples: int
    eager: float
    artifact: float

    @property
    def passed(self) -> bool:
        """Whether the artifact is exactly as accurate as eager."""
        return self.artifact == self.eager


class Verdict(StrEnum):
    """How a validation ended."""

    PASSED = "passed"
    DIVERGED = "diverged"  # a number was out of tolerance
    REFUSED = "refused"  # the runtime raised an error
    CRASHED = "crashed"  # a signal ended the process
    TIMED_OUT = "timed_out"


class ValidationReport(_Record):
    """The judgement over a whole bundle, made in a fresh process without torch."""

    verdict: Verdict
    detail: str  # empty when passed; else the first fact, e.g. "killed by SIGSEGV in program main"
    programs: tuple[ProgramValidation, ...]
    accuracy: AccuracyResult | None = None
    load_ms: float | None = None
    peak_memory_bytes: int | None = None  # of the whole process, resident
    second_model_coexists: bool | None = None  # a second session beside it gave the same bits
    machine: str = ""
    runtime: str = ""  # version of the shim runtime and its kernel library
    emulated: bool = False  # run on an emulated device: no word on the real one's speed

    @property
    def passed(self) -> bool:
        """Whether this bundle may be published."""
        return self.verdict is Verdict.PASSED


class DivergenceStage(StrEnum):
    """Between which two forms of a program the numbers part."""

    PASSES = "passes"  # a pass changed what eager computes
    LOWERING = "lowering"  # the target computes something else than eager


class Divergence(_Record):
    """The first place where a program computes something else than eager PyTorch.

    `max_abs` is in the node's own units, `snr_db` in decibels; infinite where the run ended in an
    error. Unless `certain`, the time ran out: the fault lies at this node or in what feeds it.
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
    reproducer: Path | None = None  # a folder with the smallest program that shows it

    @property
    def command(self) -> str:
        """What runs the reproducer again; empty where there is none."""
        if self.reproducer is None:
            return ""
        return f"python -m transforms.bisect {shlex.quote(str(self.reproducer))}"


class Diagnosis(_Record):
    """What the search for the cause of a failed validation came to."""

    program: str = ""  # the one that diverges, when one was found
    case: int | None = None  # the golden case whose inputs show it
    divergence: Divergence | None = None
    detail: str = ""  # why there is no divergence


class StageTime(_Record):
    """How long one stage took, in seconds."""

    stage: str
    seconds: float


class ConversionReport(_Record):
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
    eager_latency: tuple[tuple[str, Measurement], ...] = ()  # per program, same inputs and threads
    stages: tuple[StageTime, ...] = ()
    versions: dict[str, str] = {}
    created: str = ""  # ISO 8601, UTC

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
