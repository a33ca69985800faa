"""Validation of a lowered bundle, its report, and the seal that allows its publication."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from menagerie.format.folder import open_bundle
from menagerie.host import emulates
from menagerie.validation import Limits
from menagerie.validation.findings import ValidationReport
from transforms import stages
from zoo.errors import ValidationError
from zoo.records import ConversionReport
from zoo.report.files import write_report

if TYPE_CHECKING:
    from tasks.job import Job, StageRecords

_EMULATION_SHARE = 0.9  # of the stage's time; the rest is for writing the report


class NotProven(ValidationError):
    """The bundle did not reproduce eager; `report` has the details."""

    def __init__(self, place: str, fact: str, next_step: str, report: ConversionReport) -> None:
        super().__init__(place, fact, next_step)
        self.report = report


def prove(
    job: Job, records: StageRecords, *, judge: Callable[..., ValidationReport] = stages.run_goldens
) -> ConversionReport:
    """Run the bundle in a fresh process, write the report, and seal a proven bundle.

    Its state becomes `validated`, or `emulated` if this host emulates the target's device. The
    report goes to `job.reports` whatever the verdict, and into the bundle if it passed. `judge` is
    `menagerie.validation.validate` or a substitute. Raise NotProven for any verdict other than
    passed, which leaves the bundle `lowered`, and ArtifactError if a file changed while it ran.
    """
    draft = open_bundle(job.bundle, check_hashes=False).manifest
    report = stages.prove(
        job.bundle,
        draft,
        job.identity(records.pulled),
        records.transformed,
        records.lowered,
        limits=_limits(job, emulated=emulates(draft.requires)),
        stages=lambda: records.stages,
        judge=judge,
    )
    shutil.rmtree(job.reproducer, ignore_errors=True)  # of an earlier conversion
    graphs, validation = records.transformed.graphs, report.validation
    page = write_report(report, job.reports, graphs=graphs)
    if not validation.passed:
        fact = f"{validation.verdict}: {validation.detail}"
        raise NotProven(job.model, fact, f"See {page}", report)
    stages.seal(job.bundle, draft, report, graphs)
    return report


def _limits(job: Job, *, emulated: bool) -> Limits:
    # Emulated devices are not timed, so they may use all cores.
    limits = Limits(threads=None if emulated else job.threads, memory_bytes=job.memory_bytes)
    # An emulated GPU takes a quarter of an hour for a second of a real one.
    most = _EMULATION_SHARE * job.stage_seconds if emulated else limits.seconds
    return replace(limits, seconds=min(job.stage_seconds, most))
