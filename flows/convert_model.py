"""The flow that converts one model for one target."""

from typing import Annotated

from prefect import State, flow
from prefect.states import Failed
from pydantic import Field

from flows.artifacts import leave_artifact
from flows.conversion import Conversion, ConversionFailed
from flows.parameters import ConversionOptions
from flows.plan import PlannedModel, failed_row, plan, skipped_row
from flows.reports import report_folder
from flows.results import ModelResult
from flows.settings import NOTHING_KEPT
from flows.work import new_work_folder
from flows.workplace import workplace
from tasks.job import Job
from zoo.errors import UsageError
from zoo.report import markdown
from zoo.spec import Target

__all__ = ["convert_model"]


@flow(name="convert-model", flow_run_name="{model} for {target}", **NOTHING_KEPT)
def convert_model(
    model: Annotated[str, Field(description="Name of a model in the manifest")],
    target: Target = Target.CPU,
    options: ConversionOptions = ConversionOptions(),  # noqa: B008 - frozen
) -> ModelResult | State[ModelResult]:
    """Convert one model: pull, export, transform, lower, validate, publish.

    Skipped when the store already holds a release under the same build key, unless forced. The
    result is the model's row, in a failed state if the model failed: call it with `return_state`.
    """
    result = _convert(_plan_single(model, target, options), options)
    workplace().listener.model_ended(result)
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
        result, report = Conversion(_job(planned, options), workplace()).run()
    except ConversionFailed as stopped:
        return stopped.result
    name = f"{planned.model}-{planned.target}"
    leave_artifact(name, f"Conversion report of {name}", lambda: markdown(report))
    return result


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
        folder=new_work_folder(f"{planned.model}-{planned.target}"),
        reports=report_folder(planned.model, planned.target),
    )
