"""The flow that converts one model for one target."""

from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from prefect import State, flow
from prefect.logging import get_run_logger

from flows.conversion import Conversion, ConversionFailed
from flows.machine.work import new_work_folder
from flows.names import FlowName
from flows.outcome.artifacts import leave_artifact, leave_link
from flows.outcome.events import model_event, record
from flows.outcome.links import LINK_DAYS, Links, release_links
from flows.outcome.reports import report_folder
from flows.outcome.results import ModelResult, Outcome
from flows.outcome.rows import leave_row, this_run
from flows.planning.plan import (
    PlannedModel,
    crashed_row,
    failed_row,
    plan,
    skipped_row,
    unplanned_row,
)
from flows.request.choices import ModelChoice, TargetChoice
from flows.request.operator import factories_allowed
from flows.request.parameters import ConversionOptions
from flows.running.services import services
from flows.running.settings import NOTHING_KEPT, failed, without_tags
from tasks.failures import explain
from tasks.job import Job
from tasks.retries import patiently
from zoo.errors import MenagerieError, UsageError
from zoo.records import ConversionReport
from zoo.report import markdown
from zoo.store import open_store

__all__ = ["convert_model"]

_Ended = tuple[ModelResult, ConversionReport | None]


@flow(name=FlowName.CONVERT_MODEL.value, flow_run_name="{model} for {target}", **NOTHING_KEPT)
def convert_model(
    model: ModelChoice,
    target: TargetChoice = "cpu",
    options: ConversionOptions = ConversionOptions(),  # noqa: B008 - frozen
) -> ModelResult | State[ModelResult]:
    """Convert one model: pull, export, transform, lower, validate, publish.

    Skipped when the store already holds a release under the same build key. If forced, it is
    converted and proven again, but the store keeps the release that it has. The result is the
    model's row, in a failed state if the model failed: call it with `return_state`.

    Args:
        model: A model of the manifest.
        target: Where the artifact is to run.
        options: How it is converted.
    """
    result, report = _convert(model, target, options)
    _leave_pages(result, report, options.store_url)
    record(model_event(result))
    services().listener.model_ended(result)
    if not services().planned:  # else who planned it in this process has heard of it
        leave_row(result, this_run())
    if result.succeeded:
        return result
    return failed(f"{result.outcome} in {result.stage}: {result.reason}", result)


def _convert(model: str, target: str, options: ConversionOptions) -> _Ended:
    try:
        planned = services().planned.get((model, target)) or patiently(
            lambda: _plan_single(model, target, options)
        )
        if planned.error is not None:
            return failed_row(planned), None
        if planned.in_store:
            return skipped_row(planned), None
        with ExitStack() as claimed:
            store = open_store(options.store_url)
            claim = partial(store.claim, planned.build_key, waiting=_say_who_converts)
            patiently(lambda: claimed.enter_context(claim()))
            # Others may have converted it since it was planned, before or while we waited.
            if not options.force:
                state = patiently(lambda: store.state(model, target, planned.build_key))
                if state is not None:
                    return skipped_row(replace(planned, proof=state)), None
            return _run(planned, options)
    except MenagerieError as error:
        return unplanned_row(model, target, error), None


def _run(planned: PlannedModel, options: ConversionOptions) -> _Ended:
    try:
        with without_tags():
            return Conversion(_job(planned, options), services()).run()
    except ConversionFailed as stopped:
        return stopped.result, stopped.report
    except OSError as error:  # before the first stage: there is no room for its folder, say
        return crashed_row(planned, explain(error, planned.model)), None


def _leave_pages(result: ModelResult, report: ConversionReport | None, store: str) -> None:
    """The report as a page, how to get the artifact, and a link to the report in full."""
    name = f"{result.model}-{result.target}"
    links = _links(result, store)
    if report is not None:
        get = "" if links is None else f"\n{links.markdown()}"
        text = f"Conversion report of {result.model} for {result.target}"
        leave_artifact(name, text, lambda: markdown(report) + get)
    elif links is not None:
        text = f"{result.model} for {result.target} is published already"
        leave_artifact(name, text, links.markdown)
    if links is not None and links.report is not None:
        text = f"Report of {result.model} for {result.target}"
        leave_link(f"{name}-report", f"The page in full, for {LINK_DAYS} days", text, links.report)


def _links(result: ModelResult, store: str) -> Links | None:
    if result.outcome not in (Outcome.PUBLISHED, Outcome.SKIPPED) or result.build_key is None:
        return None
    try:
        return release_links(store, result.model, result.target, result.build_key)
    except MenagerieError as error:
        get_run_logger().warning("The release cannot be linked: %s", error)
        return None


def _say_who_converts(holder: str) -> None:
    get_run_logger().info("The same build is being converted by %s: waiting for it", holder)


def _plan_single(model: str, target: str, options: ConversionOptions) -> PlannedModel:
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
        allow_factories=factories_allowed(asked=options.allow_factories),
        store=options.store_url,
        threads=options.threads,
        stage_seconds=options.stage_minutes * 60.0,
        search_seconds=options.search_minutes * 60.0,
        memory_bytes=None if options.memory_gib is None else options.memory_gib * 2**30,
        folder=new_work_folder(f"{planned.model}-{planned.target}"),
        reports=report_folder(planned.model, planned.target),
    )
