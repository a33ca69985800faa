"""Finding the cause of a failed validation, and telling of it in the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.failures import explain
from tasks.job import Suspect
from tasks.stages import LOCATE
from zoo.errors import MenagerieError
from zoo.records import Diagnosis, Verdict
from zoo.report import write_report

if TYPE_CHECKING:
    from tasks.job import Evidence, Job
    from tasks.stages import ModelHolder
    from zoo.records import ConversionReport, ProgramValidation, ValidationReport
    from zoo.spec import ModelSpec

__all__ = ["diagnose", "suspects"]


def suspects(validation: ValidationReport, spec: ModelSpec) -> tuple[Suspect, ...]:
    """What to search, the likeliest first; nothing where a search would tell nothing.

    A program whose output was out of tolerance is tried with the first such golden case. One that
    was not judged, since the runtime refused it or crashed, is tried with all its cases. Where only
    the whole is wrong (two runs differ, say), every program is tried once.
    """
    if validation.passed or validation.verdict is Verdict.TIMED_OUT:
        return ()
    judged = {p.program: p for p in validation.programs}
    found = [
        Suspect(program=name, case=case)
        for name in (program.name for program in spec.programs)
        for case in (_wrong_case(judged[name]) if name in judged else (None,))
    ]
    return tuple(found) or tuple(Suspect(program=p.name, case=0) for p in spec.programs)


def diagnose(
    model: ModelHolder, job: Job, report: ConversionReport, evidence: Evidence
) -> ConversionReport:
    """Search for the cause of a failed validation, and write the report anew with what was found.

    Args:
        model: that holds the job's model.
        job: how long to search, and where the report lies.
        report: of the failed validation.
        evidence: of the stages before it.

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
    write_report(told, job.reports, graphs=evidence.transformed.graphs)
    return told


def _wrong_case(program: ProgramValidation) -> tuple[int, ...]:
    """The first case that failed, if one did."""
    return tuple(sorted(p.case for p in program.parity if not p.passed)[:1])
