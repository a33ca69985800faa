"""Jobs of manifests' models that go through the real stages."""

from __future__ import annotations

from pathlib import Path

from flows.parameters import ConversionOptions
from flows.plan import plan
from tasks.job import Job, StageRecords
from tasks.model_stages import ModelStages
from tasks.prove import prove
from tasks.stage_table import EXPORT, LOWER, PULL, TRANSFORM
from zoo.records import ConversionReport


def planned_job(manifest: Path, model: str, folder: Path) -> Job:
    """Plan the conversion of a manifest's model for the CPU, in a folder."""
    options = ConversionOptions(
        store=str(folder / "store"), manifest=str(manifest), allow_factories=True
    )
    [planned] = plan([model], ["cpu"], options)
    return Job(
        model=model,
        target="cpu",
        spec=planned.spec,
        origin=planned.origin,
        build_key=planned.build_key,
        store=options.store,
        folder=folder / "work",
        reports=folder / "reports",
        log=folder / "log",
        allow_factories=True,
    )


def converted(manifest: Path, model: str, folder: Path) -> tuple[Path, ConversionReport]:
    """Take a manifest's model through all stages to its proof: bundle and report."""
    job = planned_job(manifest, model, folder)
    with ModelStages(job) as stages:
        pulled = stages.run(PULL)
        stages.run(EXPORT)
        transformed, lowered = stages.run(TRANSFORM), stages.run(LOWER)
    records = StageRecords(pulled=pulled, transformed=transformed, lowered=lowered, stages=())
    return job.bundle, prove(job, records)
