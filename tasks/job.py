"""What one conversion is asked to do and is lent, and what its stages say when they are done."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field

from menagerie.format.bundle_manifest import ReleaseState
from menagerie.validation.findings import ValidationReport
from transforms.stages import LowerRecord, TransformRecord
from transforms.targets import Identity, target_named
from zoo.base_models import Frozen
from zoo.records import StageTime, Suspected, suspected
from zoo.spec import ModelSpec

# The code of a model's factory may run: it is not lent the keys to the store and the server, which
# converting does not need. Sources may need theirs, such as HF_TOKEN.
_WITHHELD = ("AWS_", "MENAGERIE_SWIFT_", "PGPASS", "PREFECT_", "MENAGERIE_KEYS")


def lent_environment() -> dict[str, str]:
    """Return the environment without what a model's code has no use for."""
    return {k: v for k, v in os.environ.items() if not k.startswith(_WITHHELD)}


class Job(Frozen):
    """One model for one target, with all that its conversion needs to know.

    `seed` is the seed of random weights, or None where the model keeps its own; `folder` is this
    conversion's own working folder, `reports` the folder that outlives it, `log` the file in which
    the model's process says what it does; `search_seconds` is how long the cause of a failed
    validation is looked for, 0: not at all; `stage_seconds` and `memory_bytes` bound each stage
    (None: most of the memory there is).
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
    log: Path

    def identity(self, pulled: PullRecord) -> Identity:
        """Return the identity that the bundle and the report state."""
        return Identity(
            self.model,
            target_named(self.target),
            self.build_key,
            source=pulled.source,
            random_weights=pulled.random_weights,
            licence=self.spec.licence.spdx,
            summary=self.spec.summary,
            parameters=pulled.parameters,
        )

    def same_model(self, other: Job) -> bool:
        """Return whether another job's pulled and exported model fits this one too."""
        names = ("model", "spec", "origin", "seed", "allow_factories")
        return all(getattr(self, each) == getattr(other, each) for each in names)

    def suspected(self, validation: ValidationReport) -> tuple[Suspected, ...]:
        """Return the suspects of a failed proof; see `zoo.records.suspected`."""
        return suspected(validation, [program.name for program in self.spec.programs])

    @property
    def bundle(self) -> Path:
        """The folder in which the bundle is made."""
        return self.folder / "bundle"

    @property
    def reproducer(self) -> Path:
        """Where a small program with the fault is kept, if one was found."""
        return self.reports / "divergence"


class PullRecord(Frozen):
    """The model is in memory."""

    source: str
    parameters: int
    random_weights: int | None


class ExportRecord(Frozen):
    """The programs of these names are exported, and their golden cases are made."""

    programs: tuple[str, ...]


class StageRecords(Frozen):
    """What the stages up to lowering found out, and how long each took."""

    pulled: PullRecord
    transformed: TransformRecord
    lowered: LowerRecord
    stages: tuple[StageTime, ...]


class PublishRecord(Frozen):
    """The release is in the store.

    `kept` is when an earlier release of the same build was made, if the store keeps that one.
    """

    bytes: int
    kept: str | None = None  # ISO 8601
    state: ReleaseState = ReleaseState.VALIDATED
    candidate: bool = False  # it waits for its promotion: this process may not sign
