# ruff: noqa: E402, B006, B008 - Prefect reads annotations and defaults
"""The real flows over toy stages, for workers of a test's cluster.

What a model does is said by its summary in the manifest: `fine`, `segfaults`, `sleeps`, `eats`; its
model has a process of its own, as in production; reports, seals and the store are the real ones.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "tasks"))

from botocore.config import Config
from prefect import State
from toy_zoo import ToyModel, toy_judgement

from flows import convert as zoo
from flows import fan_out, upkeep
from flows import plan as planning
from flows.parameters import ConversionOptions, RunLimits
from flows.services import Services, use_services
from flows.this_run import first_of, our_flow
from menagerie.store import s3
from tasks.forking import Child, spawn
from tasks.job import Job, StageRecords
from tasks.model_process import ModelProcess
from tasks.prove import prove
from tasks.stage_table import ModelHolder
from transforms.stages import Stage
from zoo.records import ConversionReport
from zoo.store.s3 import S3Objects

fan_out.BATCH_MODELS = 64  # toys take no time: all of a test share a run

if os.environ.get("MENAGERIE_TOYS") == "instant":  # edits of the stages' code change no toy
    planning.code_digest = lambda: "0" * 64

if seconds := os.environ.get("MENAGERIE_TEST_LINE"):  # parts so small, and silence so short
    S3Objects.part_bytes, S3Objects.concurrency = 5 * 2**20, 1
    s3._CONFIG = s3._CONFIG.merge(Config(read_timeout=float(seconds)))

COMMAND = (sys.executable, str(Path(__file__).with_name("faulty_model.py")))


def start(_kind: str, log: Path) -> Child:
    """The process of a faulty model."""
    return spawn(COMMAND, log)


def model(job: Job) -> ModelHolder:
    """The faulty model in a process; `instant` toys, for a benchmark, do without one."""
    if os.environ.get("MENAGERIE_TOYS") == "instant":
        return ToyModel(job)
    return ModelProcess(job, start=start)


def toy_prove(job: Job, records: StageRecords) -> ConversionReport:
    """Every toy passes; those for Metal by emulation."""
    emulated = job.target == "metal"
    judged = replace(toy_judgement(), emulated=emulated)
    return prove(job, records, judge=lambda *_, **__: judged)


def place() -> Services:
    """Toys in place of compilers."""
    judge = lambda *_, **__: toy_judgement()  # noqa: E731
    return Services(hold=model, instead={Stage.VALIDATE: toy_prove}, judge=judge)


@our_flow("{model} for {target}")
def convert_model(
    model: str, target: str = "cpu", options: ConversionOptions = ConversionOptions()
) -> State[Any]:
    """See `flows.convert`."""
    with use_services(place()):
        return zoo.convert_model.fn(model, target, options)  # type: ignore[no-any-return]


@our_flow(lambda asked: f"{first_of(asked['models'])} for {asked['target']}")
def convert_batch(
    models: list[str],
    target: str = "cpu",
    options: ConversionOptions = ConversionOptions(),
) -> State[Any]:
    """See `flows.convert`."""
    with use_services(place()):
        return zoo.convert_batch.fn(models, target, options)  # type: ignore[no-any-return]


@our_flow("confirm")
def confirm_releases(
    models: list[str] = [], targets: list[str] = [], store: str = ""
) -> State[Any]:
    """See `flows.upkeep`."""
    with use_services(place()):
        return upkeep.confirm_releases.fn(models, targets, store=store)  # type: ignore[no-any-return]


@our_flow("convert")
def convert_zoo(
    models: list[str] = [],
    selected_tags: list[str] = [],
    targets: list[str] = [],
    options: ConversionOptions = ConversionOptions(),
    limits: RunLimits = RunLimits(),
) -> State[Any]:
    """See `flows.convert`."""
    with use_services(place()):
        return zoo.convert_zoo.fn(  # type: ignore[return-value]
            models, selected_tags, targets, options, limits=limits
        )
