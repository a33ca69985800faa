"""What a planned conversion is told when its turn comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.machine.work import new_work_folder
from flows.outcome.failures import conversion_log
from flows.outcome.reports import report_folder
from flows.request.operator import factories_allowed
from tasks.job import Job

if TYPE_CHECKING:
    from flows.planning.plan import PlannedModel
    from flows.request.parameters import ConversionOptions

__all__ = ["job_for"]


def job_for(planned: PlannedModel, options: ConversionOptions) -> Job:
    """A job in a working folder of its own, which is not made yet."""
    return Job(
        model=planned.model,
        target=planned.target,
        spec=planned.spec,
        origin=planned.origin,
        build_key=planned.build_key,
        seed=planned.seed,
        allow_factories=factories_allowed(options.manifest, asked=options.allow_factories),
        store=options.store_url,
        threads=options.threads,
        stage_seconds=options.stage_minutes * 60.0,
        search_seconds=options.search_minutes * 60.0,
        memory_bytes=None if options.memory_gib is None else options.memory_gib * 2**30,
        folder=new_work_folder(f"{planned.model}-{planned.target}"),
        reports=report_folder(planned.model, planned.target),
        log=conversion_log(planned.model, planned.target, planned.build_key),
    )
