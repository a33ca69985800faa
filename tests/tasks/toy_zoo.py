"""A zoo of toys: jobs, a model and a judge that do at once what the real ones take minutes for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime" / "format"))

from bundle_maker import make_bundle

from menagerie.numerics import DEFAULT_TOLERANCES, Dtype
from menagerie.validation.findings import (
    CaseShape,
    Measurement,
    OutputParity,
    ProgramValidation,
    ValidationReport,
    Verdict,
)
from tasks.job import ExportRecord, Job, PullRecord, StageRecords
from tasks.stage_table import ModelHolder
from transforms.stages import LowerRecord, Stage, TransformRecord
from zoo.progress import report_step
from zoo.records import Diagnosis, Divergence, DivergenceStage, StageTime, Suspected
from zoo.spec import Licence, ModelSpec, ProgramSpec, TorchvisionSource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BUILD_KEY = "a" * 64


def toy_job(folder: Path, **changes: Any) -> Job:
    """A job for a model called `toy`; `changes` replace its fields."""
    fields: dict[str, Any] = {
        "model": "toy",
        "target": "cpu",
        "spec": ModelSpec(
            summary="a toy",
            source=TorchvisionSource(kind="torchvision", builder="resnet18"),
            programs=(ProgramSpec.model_validate({"inputs": [{"name": "x", "shape": [1, 3]}]}),),
            licence=Licence(spdx="Apache-2.0"),
        ),
        "origin": folder / "models.yaml",
        "build_key": BUILD_KEY,
        "seed": 0,
        "store": str(folder / "store"),
        "folder": folder / "work",
        "reports": folder / "reports",
        "log": folder / "logs" / "toy.log",
    }
    return Job.model_validate(fields | changes)


def toy_records() -> StageRecords:
    """What the stages before validation say of a toy."""
    return StageRecords(
        pulled=PullRecord(source="a test", parameters=3, random_weights=0),
        transformed=TransformRecord(passes=()),
        lowered=LowerRecord(
            lowering=(), eager_latency=(("main", measured(4.0)),), weights_bytes=12
        ),
        stages=(StageTime(stage="pull", seconds=1.5),),
    )


def measured(median: float) -> Measurement:
    """A latency of `median` milliseconds."""
    return Measurement(minimum_ms=median, median_ms=median, p90_ms=median, runs=3, threads=1)


class ToyModel(ModelHolder):
    """A model in this process; `faults` says what each stage raises.

    Its search always finds `toy_divergence` in the first suspect.
    """

    def __init__(self, job: Job, faults: Mapping[Stage, BaseException] | None = None) -> None:
        self._job = job
        self._faults = faults or {}
        self.asked: list[Stage] = []

    def pull(self) -> PullRecord:
        """Three parameters."""
        self._enter(Stage.PULL)
        return PullRecord(source="a test", parameters=3, random_weights=self._job.seed)

    def export(self) -> ExportRecord:
        """Two nodes."""
        self._enter(Stage.EXPORT)
        report_step("program main: exported, 3 golden cases", 0.5)
        return ExportRecord(programs=("main",))

    def transform(self) -> TransformRecord:
        """No passes."""
        self._enter(Stage.TRANSFORM)
        return TransformRecord(passes=())

    def lower(self) -> LowerRecord:
        """A sealed bundle whose files are words."""
        self._enter(Stage.LOWER)
        toy_bundle(self._job)
        return toy_records().lowered

    def locate(self, suspects: Sequence[Suspected]) -> Diagnosis:
        """The first suspect is it."""
        self._enter(Stage.LOCATE)
        program, case = suspects[0]
        return Diagnosis(program=program, case=case, divergence=toy_divergence(self._job))

    def _enter(self, stage: Stage) -> None:
        self.asked.append(stage)
        if stage in self._faults:
            raise self._faults[stage]


def toy_divergence(job: Job) -> Divergence:
    """A convolution that a pass made wrong."""
    return Divergence(
        stage=DivergenceStage.PASSES,
        pass_name="fold_batch_norm",  # noqa: S106 - no password
        node="conv2d_3",
        operator="aten.conv2d.default",
        module_path="layer1.0.conv2",
        source_line="models/toy.py:92",
        max_abs=0.25,
        snr_db=3.5,
        reproducer=job.reproducer,
    )


def toy_bundle(job: Job) -> Path:
    """The bundle of `job`, sealed as `lowered`."""
    return make_bundle(
        job.bundle,
        model=job.model,
        target=job.target,
        build_key=job.build_key,
        state="lowered",
        random_weights=job.seed,
    )


def toy_judgement(*, passed: bool = True) -> ValidationReport:
    """One output, off by 3e-6 or by 0.5."""
    error = 3e-6 if passed else 0.5
    parity = OutputParity(
        case=0,
        output="y",
        dtype=Dtype.FLOAT32,
        shape=(1, 3),
        max_abs=error,
        max_rel=error,
        snr_db=110.0 if passed else 3.0,
        cosine=1.0,
        nonfinite_match=True,
        tolerance=DEFAULT_TOLERANCES[Dtype.FLOAT32],
        passed=passed,
    )
    program = ProgramValidation(
        program="main",
        cases=(CaseShape(case=0, dimensions={}),),
        parity=(parity,),
        deterministic=True,
        latency=measured(2.0),
        passed=passed,
    )
    return ValidationReport(
        verdict=Verdict.PASSED if passed else Verdict.DIVERGED,
        detail="" if passed else "y of case 0 is off by 0.5",
        programs=(program,),
    )
