"""Finding the cause of a failed validation, and telling of it in the report."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tasks.failures import explain
from tasks.job import Suspect
from tasks.stages import LOCATE
from zoo.errors import MenagerieError
from zoo.manifest import OUR_MODELS
from zoo.records import Diagnosis, suspected
from zoo.report import write_report

if TYPE_CHECKING:
    from tasks.job import Job, StageRecords
    from tasks.stages import ModelHolder
    from zoo.records import ConversionReport, ValidationReport
    from zoo.spec import ModelSpec


def search_command(job: Job) -> str:
    """What finds the first node of a job that is wrong, as it is typed."""
    words = ["zoo", "bisect", job.model, "--target", job.target]
    if job.seed is not None:
        words += ["--random-weights", str(job.seed)]
    if job.origin.parent != OUR_MODELS:
        words += ["--manifest", str(job.origin.parent)]
    if job.allow_factories:
        words.append("--allow-factories")
    return shlex.join(words)


def suspects(validation: ValidationReport, spec: ModelSpec) -> tuple[Suspect, ...]:
    """See `zoo.records.suspected`."""
    found = suspected(validation, [program.name for program in spec.programs])
    return tuple(Suspect(program=program, case=case) for program, case in found)


def diagnose(
    model: ModelHolder, job: Job, report: ConversionReport, records: StageRecords
) -> ConversionReport:
    """Search for the cause of a failed validation, and write the report anew with what was found.

    Args:
        model: that holds the job's model.
        job: how long to search, and where the report lies.
        report: of the failed validation.
        records: of the stages before it.

    Returns:
        The report with a diagnosis. A search that fails is one: it never hides the verdict.

    Raises:
        StoreFull: no space left for the report.
        StoreError: the report cannot be written.
    """
    try:
        diagnosis = model.run(LOCATE, suspects(report.validation, job.spec))
    except Exception as error:  # noqa: BLE001 - whatever it is, the verdict stands
        ours = error if isinstance(error, MenagerieError) else explain(error, job.model)
        diagnosis = Diagnosis(detail=f"The search for the cause ended early: {ours}")
    told = report.model_copy(update={"diagnosis": diagnosis})
    write_report(told, job.reports, graphs=records.transformed.graphs)
    return told
