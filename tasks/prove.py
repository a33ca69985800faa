"""Validation of a lowered bundle, the report over it, and the seal that lets it be published."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from menagerie.format.bundle_manifest import ReleaseState
from menagerie.format.folder import open_bundle
from menagerie.host import emulates
from menagerie.validation import Limits, validate
from zoo.bundle_differences import reseal
from zoo.errors import ValidationError
from zoo.records import ConversionReport, with_latencies
from zoo.report import write_report

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.job import Job, StageRecords
    from zoo.records import ValidationReport

__all__ = ["NotProven", "prove"]


_EMULATION_SHARE = 0.9  # of the stage's time; the report is written in the rest

# Nobody has signed it yet: whoever will looks at this verdict first.
_run_goldens = partial(validate, allow_unsigned=True)


class NotProven(ValidationError):
    """The bundle did not reproduce eager; `report` has the whole story."""

    def __init__(self, place: str, fact: str, next_step: str, report: ConversionReport) -> None:
        super().__init__(place, fact, next_step)
        self.report = report


def prove(
    job: Job, records: StageRecords, *, judge: Callable[..., ValidationReport] = _run_goldens
) -> ConversionReport:
    """Run the bundle in a fresh process, write the report, and seal a proven bundle.

    Its state is then `validated`, or `emulated` where this host emulates the target's device.

    Args:
        job: whose bundle to prove.
        records: what the stages before found out, for the report.
        judge: `menagerie.validation.validate`, or what stands in for it.

    The report goes to `job.reports` whatever the verdict, and into the bundle if it passed.

    Raises:
        NotProven: if the verdict is anything but passed; the bundle stays `lowered`.
        ArtifactError: if a file of the bundle changed while it ran.
    """
    draft = open_bundle(job.bundle, check_hashes=False).manifest
    limits = _limits(job, records, emulated=emulates(draft.requires))
    judged = judge(job.bundle, limits=limits)
    validation = with_latencies(judged, records.lowered.artifact_latency)
    report = _report(job, records, validation, draft.versions)
    shutil.rmtree(job.reproducer, ignore_errors=True)  # of an earlier conversion
    graphs = records.transformed.graphs
    page = write_report(report, job.reports, graphs=graphs)
    if not validation.passed:
        raise NotProven(
            job.model, f"{validation.verdict}: {validation.detail}", f"See {page}", report
        )
    write_report(report, job.bundle, graphs=graphs)
    state = ReleaseState.EMULATED if validation.emulated else ReleaseState.VALIDATED
    reseal(job.bundle, draft, state)
    return report


def _limits(job: Job, records: StageRecords, *, emulated: bool) -> Limits:
    # An emulated device is not timed, so it may take all cores.
    limits = Limits(threads=None if emulated else job.threads, memory_bytes=job.memory_bytes)
    # What a GPU does in a second takes an emulated one a quarter of an hour.
    most = _EMULATION_SHARE * job.stage_seconds if emulated else limits.seconds
    limits = replace(limits, seconds=min(job.stage_seconds, most))
    return replace(limits, measure_seconds=0.0) if records.lowered.artifact_latency else limits


def _report(
    job: Job, records: StageRecords, validation: ValidationReport, versions: dict[str, str]
) -> ConversionReport:
    return ConversionReport(
        model=job.model,
        summary=job.spec.summary,
        target=job.target,
        build_key=job.build_key,
        source=records.pulled.source,
        random_weights=records.pulled.random_weights,
        licence=job.spec.licence.spdx,
        parameters=records.pulled.parameters,
        weights_bytes=records.lowered.weights_bytes,
        passes=records.transformed.passes,
        lowering=records.lowered.lowering,
        validation=validation,
        eager_latency=records.lowered.eager_latency,
        stages=records.stages,
        versions=versions,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
