"""The flow that converts one model for one target."""

from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from prefect import State, flow
from prefect.logging import get_run_logger

from flows.conversion import Conversion, ConversionFailed
from flows.names import FlowName
from flows.outcome.events import model_event, record
from flows.outcome.pages import Ended, leave_pages
from flows.outcome.results import ModelResult
from flows.outcome.rows import leave_row, this_run
from flows.planning.job import job_for
from flows.planning.plan import (
    PlannedModel,
    crashed_row,
    failed_row,
    plan,
    skipped_row,
    unplanned_row,
)
from flows.request.choices import ModelChoice, TargetChoice
from flows.request.parameters import ConversionOptions
from flows.running.services import services
from flows.running.settings import NOTHING_KEPT, failed, without_tags
from flows.running.taken_over import give_way
from tasks.failures import explain
from tasks.retries import patiently
from zoo.errors import MenagerieError, UsageError
from zoo.store import open_store

__all__ = ["convert_model"]


@flow(name=FlowName.CONVERT_MODEL.value, flow_run_name="{model} for {target}", **NOTHING_KEPT)
def convert_model(
    model: ModelChoice,
    target: TargetChoice = "cpu",
    options: ConversionOptions = ConversionOptions(),  # noqa: B008 - frozen
) -> ModelResult | State[ModelResult]:
    """Convert one model: pull, export, transform, lower, validate, publish.

    Skipped when the store already holds a release under the same build key. If forced, it is
    converted and proven anew, but the store keeps the release that it has. The result is the
    model's row, in a failed state if the model failed: call it with `return_state`.

    Args:
        model: A model of the manifest.
        target: Where the artifact is to run.
        options: How it is converted.
    """
    ended = _convert(model, target, options)
    if not ended.row.succeeded:
        give_way()
    result = leave_pages(ended, options.store_url)
    record(model_event(result))
    services().listener.model_ended(result)
    if not services().planned:  # else who planned it in this process has heard of it
        leave_row(result, this_run())
    if result.succeeded:
        return result
    return failed(f"{result.outcome} in {result.stage}: {result.reason}", result)


def _convert(model: str, target: str, options: ConversionOptions) -> Ended:
    summary = ""
    try:
        planned = services().planned.get((model, target)) or patiently(
            lambda: _plan_single(model, target, options)
        )
        summary = planned.spec.summary
        if planned.error is not None:
            return Ended(failed_row(planned), error=planned.error, summary=summary)
        if planned.in_store:
            return Ended(skipped_row(planned))
        with ExitStack() as claimed:
            store = open_store(options.store_url)
            claim = partial(store.claim, planned.build_key, waiting=_say_who_converts)
            patiently(lambda: claimed.enter_context(claim()))
            # Others may have converted it since it was planned, before or while we waited.
            if not options.force:
                held = patiently(lambda: store.held(model, target, planned.build_key))
                if held is not None:
                    return Ended(skipped_row(replace(planned, held=held)))
            return _run(planned, options)
    except MenagerieError as error:
        return Ended(unplanned_row(model, target, error), error=error, summary=summary)


def _run(planned: PlannedModel, options: ConversionOptions) -> Ended:
    try:
        with without_tags():
            given = services()
            # Who planned several in this process draws the catalogue once, for all of them.
            job = job_for(planned, options).model_copy(update={"draws": not given.planned})
            row, report = Conversion(job, given).run()
            return Ended(row, report)
    except ConversionFailed as stopped:
        return Ended(stopped.result, stopped.report, stopped.error, planned.spec.summary)
    except OSError as error:  # before the first stage: there is no room for its folder, say
        ours = explain(error, planned.model)
        return Ended(crashed_row(planned, ours), error=ours, summary=planned.spec.summary)


def _say_who_converts(holder: str) -> None:
    get_run_logger().info("The same build is being converted by %s: waiting for it", holder)


def _plan_single(model: str, target: str, options: ConversionOptions) -> PlannedModel:
    planned = plan([model], [target], options)
    if len(planned) != 1:
        raise UsageError(model, f"is not one model for {target}", "Run `zoo list` to see them")
    return planned[0]
