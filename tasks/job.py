"""What one conversion is asked to do, and what each of its stages says when it is done."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from zoo.evidence import LoweringRecord, Measurement, PassLog, StageTime
from zoo.spec import ModelSpec, Target

__all__ = [
    "Evidence",
    "ExportRecord",
    "ExportedProgramSize",
    "Job",
    "LowerRecord",
    "PublishRecord",
    "PullRecord",
    "Stage",
    "TransformRecord",
]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Stage(StrEnum):
    """The stages of a conversion, in their order."""

    PULL = "pull"
    EXPORT = "export"
    TRANSFORM = "transform"
    LOWER = "lower"
    VALIDATE = "validate"
    PUBLISH = "publish"


class Job(_Record):
    """One model for one target, with all that its conversion needs to know.

    `seed` is the seed of random weights, or None where the model keeps its own; `folder` is this
    conversion's own working folder, `reports` the folder that outlives it.
    """

    model: str
    target: Target
    spec: ModelSpec
    origin: Path
    build_key: str = Field(pattern=r"^[0-9a-f]{64}$")
    seed: int | None = None
    allow_factories: bool = False
    store: str
    threads: int = Field(default=1, ge=1)
    folder: Path
    reports: Path

    @property
    def bundle(self) -> Path:
        """The folder in which the bundle is made."""
        return self.folder / "bundle"


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


class LowerRecord(_Record):
    """The bundle is written and sealed as `lowered`."""

    lowering: tuple[LoweringRecord, ...]
    eager_latency: tuple[tuple[str, Measurement], ...]
    weights_bytes: int


class Evidence(_Record):
    """What the stages up to lowering found out, and how long each took."""

    pulled: PullRecord
    transformed: TransformRecord
    lowered: LowerRecord
    stages: tuple[StageTime, ...]


class PublishRecord(_Record):
    """The release is in the store."""

    store: str
    bytes: int
