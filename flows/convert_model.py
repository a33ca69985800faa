"""The flow that converts one model for one target."""

from dataclasses import replace

from prefect import State, flow
from prefect.logging import get_run_logger
from prefect.states import Failed

from flows.artifacts import leave_artifact
from flows.choices import ModelChoice
from flows.conversion import Conversion, ConversionFailed
from flows.parameters import ConversionOptions
from flows.plan import PlannedModel, failed_row, plan, skipped_row
from flows.reports import report_folder
from flows.results import ModelResult
from flows.rows import leave_row, this_run
from flows.settings import NOTHING_KEPT
from flows.work import new_work_folder
from flows.workplace import workplace
from tasks.job import Job
from zoo.errors import StoreError, UsageError
from zoo.report import markdown
from zoo.spec import Target
from zoo.store import open_store

__all__ = ["convert_model"]


@flow(name="convert-model", flow_run_name="{model} for {target}", **NOTHING_KEPT)
def convert_model(
    model: ModelChoice,
    target: Target = Target.CPU,
    options: ConversionOptions = ConversionOptions(),  # noqa: B008 - frozen
) -> ModelResult | State[ModelResult]:
    """Convert one model: pull, export, transform, lower, validate, publish.

    Skipped when the store already holds a release under the same build key, unless forced. The
    result is the model's row, in a failed state if the model failed: call it with `return_state`.

    Args:
        model: A model of the manifest.
        target: Where the artifact is to run.
        options: How it is converted.
    """
    place = workplace()
    planned = place.planned.get((model, target)) or _plan_single(model, target, options)
    result = _convert(planned, options)
    place.listener.model_ended(result)
    leave_row(result, this_run())
    if result.succeeded:
        return result
    # Not raised: what a flow raises, Prefect writes to its storage.
    reason = f"{result.outcome} in {result.stage}: {result.reason}"
    return Failed(message=reason, data=result)


def _convert(planned: PlannedModel, options: ConversionOptions) -> ModelResult:
    if planned.error is not None:
        return failed_row(planned)
    if planned.in_store:
        return skipped_row(planned)
    try:
        store = open_store(options.store_url)
        with store.claim(planned.build_key, waiting=_say_who_converts) as waited:
            if waited and (again := _plan_single(planned.model, planned.target, options)).in_store:
                return skipped_row(again)
            return _run(planned, options)
    except StoreError as error:
        return failed_row(replace(planned, error=str(error)))


def _run(planned: PlannedModel, options: ConversionOptions) -> ModelResult:
    try:
        result, report = Conversion(_job(planned, options), workplace()).run()
    except ConversionFailed as stopped:
        if stopped.report is None:
            return stopped.result
        result, report = stopped.result, stopped.report
    name = f"{planned.model}-{planned.target}"
    leave_artifact(name, f"Conversion report of {name}", lambda: markdown(report))
    return result


def _say_who_converts(holder: str) -> None:
    get_run_logger().info("The same build is being converted by %s: waiting for it", holder)


def _plan_single(model: str, target: Target, options: ConversionOptions) -> PlannedModel:
    planned = plan([model], [target], options)
    if len(planned) != 1:
        raise UsageError(model, f"is not one model for {target}", "Run `zoo list` to see them")
    return planned[0]


def _job(planned: PlannedModel, options: ConversionOptions) -> Job:
    return Job(
        model=planned.model,
        target=planned.target,
        spec=planned.spec,
        origin=planned.origin,
        build_key=planned.build_key,
        seed=planned.seed,
        allow_factories=options.allow_factories,
        store=options.store_url,
        threads=options.threads,
        stage_seconds=options.stage_minutes * 60.0,
        memory_bytes=None if options.memory_gib is None else options.memory_gib * 2**30,
        folder=new_work_folder(f"{planned.model}-{planned.target}"),
        reports=report_folder(planned.model, planned.target),
    )
