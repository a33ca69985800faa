"""What one conversion is asked to do, and what each of its stages says when it is done."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from menagerie.format.bundle_manifest import ReleaseState
from zoo.records import LoweringRecord, Measurement, PassLog, ProgramGraphs, StageTime
from zoo.spec import ModelSpec

__all__ = [
    "Evidence",
    "ExportRecord",
    "ExportedProgramSize",
    "Job",
    "LowerRecord",
    "PublishRecord",
    "PullRecord",
    "Stage",
    "Suspect",
    "TransformRecord",
]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Stage(StrEnum):
    """The stages of a conversion, in their order; `locate` only after a failed validation."""

    PULL = "pull"
    EXPORT = "export"
    TRANSFORM = "transform"
    LOWER = "lower"
    VALIDATE = "validate"
    LOCATE = "locate"
    PUBLISH = "publish"


class Job(_Record):
    """One model for one target, with all that its conversion needs to know.

    `seed` is the seed of random weights, or None where the model keeps its own; `folder` is this
    conversion's own working folder, `reports` the folder that outlives it; `search_seconds` is how
    long the cause of a failed validation is looked for, 0: not at all; `stage_seconds` and
    `memory_bytes` bound each stage (None: most of the memory there is).
    """

    model: str
    target: str
    spec: ModelSpec
    origin: Path
    build_key: str = Field(pattern=r"^[0-9a-f]{64}$")
    seed: int | None = None
    allow_factories: bool = False
    store: str
    threads: int = Field(default=1, ge=1)
    stage_seconds: float = Field(default=3600.0, gt=0)
    memory_bytes: int | None = Field(default=None, gt=0)
    search_seconds: float = Field(default=600.0, ge=0)
    folder: Path
    reports: Path

    @property
    def bundle(self) -> Path:
        """The folder in which the bundle is made."""
        return self.folder / "bundle"

    @property
    def reproducer(self) -> Path:
        """Where the smallest program with the fault is kept, if one was found."""
        return self.reports / "divergence"


class PullRecord(_Record):
    """The model is in memory."""

    source: str
    parameters: int
    random_weights: int | None


class ExportedProgramSize(_Record):
    """A program as exported."""

    program: str
    nodes: int
    golden_cases: int


class ExportRecord(_Record):
    """Every program is exported, and its golden cases are made."""

    programs: tuple[ExportedProgramSize, ...]


class TransformRecord(_Record):
    """Every pass has run over every program."""

    passes: tuple[PassLog, ...]
    graphs: tuple[ProgramGraphs, ...] = ()


class LowerRecord(_Record):
    """The bundle is written and sealed as `lowered`.

    The latencies, by program, were measured in turns; none where this machine only emulates the
    target's device, or the artifact could not be run.
    """

    lowering: tuple[LoweringRecord, ...]
    artifact_latency: tuple[tuple[str, Measurement], ...] = ()
    eager_latency: tuple[tuple[str, Measurement], ...]
    weights_bytes: int


class Evidence(_Record):
    """What the stages up to lowering found out, and how long each took."""

    pulled: PullRecord
    transformed: TransformRecord
    lowered: LowerRecord
    stages: tuple[StageTime, ...]


class Suspect(_Record):
    """A program, and the golden case with which it may show what is wrong; None: any of them."""

    program: str
    case: int | None


class PublishRecord(_Record):
    """The release is in the store.

    `kept` is when an earlier release of the same build was made, if the store keeps that one.
    """

    store: str
    bytes: int
    kept: str | None = None  # ISO 8601
    state: ReleaseState = ReleaseState.VALIDATED
    promoted: bool = False  # else it is a candidate, until whoever has the keys promotes it
