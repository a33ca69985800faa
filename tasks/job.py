"""The input of one conversion, and the records of its stages."""

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

# The code of a model's factory may run. It must not get the credentials of the store and the
# server, which converting does not need. Sources may need theirs, such as HF_TOKEN.
_WITHHELD = ("AWS_", "MENAGERIE_SWIFT_", "PGPASS", "PREFECT_", "MENAGERIE_KEYS")


def lent_environment() -> dict[str, str]:
    """Return the environment without the credentials that a model's code does not need."""
    return {k: v for k, v in os.environ.items() if not k.startswith(_WITHHELD)}


class Job(Frozen):
    """One model for one target, with everything that its conversion needs.

    `seed` is the seed of random weights, or None if the model keeps its own; `folder` is this
    conversion's own working folder, `reports` the folder that outlives it, `log` the file of the
    output of the model's process; `search_seconds` is the time for finding the cause of a failed
    validation, 0: none; `stage_seconds` and `memory_bytes` bound each stage (None: most of
    the available memory).
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
        """Return whether this job can use another job's pulled and exported model."""
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
        """The folder of a small program that reproduces the fault, if one was found."""
        return self.reports / "divergence"


class PullRecord(Frozen):
    """A record that the model is in memory."""

    source: str
    parameters: int
    random_weights: int | None


class ExportRecord(Frozen):
    """A record that these programs are exported and their golden cases made."""

    programs: tuple[str, ...]


class StageRecords(Frozen):
    """The records of the stages up to lowering, and their times."""

    pulled: PullRecord
    transformed: TransformRecord
    lowered: LowerRecord
    stages: tuple[StageTime, ...]


class PublishRecord(Frozen):
    """A record that the release is in the store.

    `kept` is the time of an earlier release of the same build, if the store keeps that one.
    """

    bytes: int
    kept: str | None = None  # ISO 8601
    state: ReleaseState = ReleaseState.VALIDATED
    candidate: bool = False  # it awaits promotion: this process may not sign
