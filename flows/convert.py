"""The flows that convert models, on workers or here, and one model or a batch on a worker."""

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from itertools import groupby
from typing import Annotated, Any

from prefect import State
from prefect.client.orchestration import get_client
from prefect.runtime import deployment
from prefect.states import Completed, Failed
from pydantic import Field

from flows.batches import CONVERT_BATCH
from flows.conversion import ModelChoice, TagChoice, TargetChoice, convert_in_task
from flows.fan_out import Conversions
from flows.pages import Ended, leave_artifact, leave_pages, tell
from flows.parameters import ConversionOptions, RunLimits
from flows.plan import PlannedModel, plan, sort_out
from flows.reports import refresh_index, table_of
from flows.results import ModelResult, Outcome, RunResult, Step, results_markdown
from flows.runs import Runs, address, rows_left_before
from flows.services import services, use_services
from flows.this_run import failed, first_of, our_flow, tag_run, this_run
from tasks.publish import draw_catalogue
from tasks.retries import patiently
from tasks.stage_table import shared_model
from zoo.errors import MenagerieError
from zoo.store import Store, open_store


@our_flow("{model} for {target}")
def convert_model(
    model: ModelChoice,
    target: TargetChoice = "cpu",
    options: ConversionOptions = ConversionOptions(),  # noqa: B008 - frozen
) -> RunResult | State[RunResult]:
    """Convert one model: pull, export, transform, lower, validate, publish.

    Skipped when the store already holds a release under the same build key. If forced, it is
    converted and proven anew, but the store keeps the release that it has. The result is a table of
    one row, in a failed state if the model failed: call it with `return_state`.

    Args:
        model: A model of the manifest.
        target: Where the artifact is to run.
        options: How it is converted.
    """
    run = _converted([model], target, options)
    return run if run.succeeded else failed(run.results[0].verdict, run)


@our_flow(lambda asked: f"{first_of(asked['models'])} for {asked['target']}")
def convert_batch(
    models: list[str],
    target: str = "cpu",
    options: ConversionOptions = ConversionOptions(),  # noqa: B008 - frozen
) -> State[RunResult]:
    """Convert models one after another; each leaves its row on this run as soon as it is done.

    Run again after a crash, it goes on with the models that have no row yet. A model that fails is
    a task that failed; this run has done what it is for.

    Args:
        models: Names of models in the manifest.
        target: The target to convert for.
        options: The same for every model.
    """
    run = _converted(models, target, options)
    name = "Completed" if run.succeeded else "With failures"
    return Completed(name=name, message=run.summary, data=run)


def _converted(models: list[str], target: str, options: ConversionOptions) -> RunResult:
    """Convert the models without a row on this run; all fail if they cannot be planned."""
    tag_run([*models, target])
    given = dataclasses.replace(services(), leaves_rows=True)
    rows = given.listener.rows
    rows |= {(row.model, row.target): row for row in rows_left_before()}
    rest = [model for model in models if (model, target) not in rows]
    store: Store | None = None
    with use_services(given):
        try:
            store = open_store(options.store_url)
            planned = patiently(lambda: plan(rest, [target], options)) if rest else []
        except MenagerieError as error:
            failure = {"outcome": Outcome.FAILED, "stage": Step.PLAN, "reason": str(error)}
            for model in rest:
                row = ModelResult(model=model, target=target, **failure)
                tell(leave_pages(Ended(row, error=error), store))
        else:
            convert_here(planned, options, store)
    return RunResult(results=tuple(rows.values()), store=options.store_url)


def _conversion_name(asked: Mapping[str, Any]) -> str:
    """Return a run's name, e.g. `convert resnet18 and 3 more for metal`."""
    models = [*asked["models"], *(f"tag {tag}" for tag in asked["selected_tags"])]
    what = f"convert {first_of(models) or 'the default models'}"
    targets = ", ".join(map(str, asked["targets"]))
    return f"{what} for {targets}" if targets else what


@our_flow(_conversion_name)
def convert_zoo(
    models: list[ModelChoice] = [],  # noqa: B006 - Prefect reads the defaults for its form
    selected_tags: list[TagChoice] = [],  # noqa: B006
    targets: list[TargetChoice] = [],  # noqa: B006
    options: ConversionOptions = ConversionOptions(),  # noqa: B008 - frozen
    *,
    limits: RunLimits = RunLimits(),  # noqa: B008
    jobs: Annotated[int, Field(ge=1, le=64)] = 1,
) -> RunResult | State[RunResult]:
    """Convert models on the workers of the server; without any, here, one after another.

    A model that fails never stops the others; the table at the end is complete. The run's state is
    failed if any model did, and holds the table all the same: call it with `return_state`.

    Args:
        models: Models to convert. Empty, and no tags: those with the tag default.
        selected_tags: Also all models with one of these tags.
        targets: Targets to convert for. Empty: all that a model supports.
        options: The same for every model.
        limits: Time limits of the run.
        jobs: Number of models to convert at a time where there are no workers.
    """
    began = time.perf_counter()
    try:
        planned = list(services().planned) or patiently(
            lambda: plan(models, targets, options, tags=selected_tags)
        )
    except MenagerieError as error:  # raising it would put a traceback into the run's log
        return Failed(message=str(error), data=error)
    tag_run({name for one in planned for name in (one.model, one.target)})
    rows = _convert_all(planned, options, limits, jobs)
    run = table_of(rows, options.store_url, refresh_index(), began)
    leave_artifact(
        "convert-zoo", f"Conversion run: {run.summary}", lambda: results_markdown(run.results)
    )
    return run if run.succeeded else failed(run.summary, run)


def _convert_all(
    planned: list[PlannedModel], options: ConversionOptions, limits: RunLimits, jobs: int
) -> list[ModelResult]:
    """Return all models' rows in the planned order; a stored model gets no run."""
    given = services()
    recorder = given.listener
    work = sort_out(planned, recorder.model_ended)
    until = time.monotonic() + limits.hours * 3600
    with use_services(given), get_client(sync_client=True) as client:
        runs = Runs(client, this_run())
        if work and (deployments := runs.deployments(CONVERT_BATCH)):
            recorder.run_began(address(this_run()))
            Conversions(
                runs,
                deployments,
                limits=limits,
                options=options,
                recorder=recorder,
                attended=deployment.get_id() is None,
            ).convert(work, until)
        else:
            convert_here(work, options, open_store(options.store_url), jobs, until)
    return [recorder.rows[one.model, one.target] for one in planned]


def convert_here(
    work: Sequence[PlannedModel],
    options: ConversionOptions,
    store: Store,
    jobs: int = 1,
    until: float = math.inf,
) -> None:
    """Convert models one after another, or `jobs` at a time, and report the row of each.

    A model is pulled and exported once for all targets, which are adjacent in `work`, unless there
    are fewer models than jobs.

    A model that has not begun at `until`, by the monotonic clock, times out. The catalogue is drawn
    at the end, including models that the run published before it crashed and restarted.
    """
    given = dataclasses.replace(services(), planned=work)

    def convert(one: PlannedModel) -> None:
        if time.monotonic() > until:
            tell(one.row(Outcome.TIMED_OUT, Step.RUN, "the run's hours are over"))
        else:
            convert_in_task(one, options, store)

    def convert_together(group: Sequence[PlannedModel]) -> None:
        with shared_model(given.hold) as hold, use_services(dataclasses.replace(given, hold=hold)):
            for one in group:
                convert(one)

    groups = [list(same) for _, same in groupby(work, lambda one: one.model)]
    if len(groups) < jobs:
        groups = [[one] for one in work]
    try:
        with use_services(given):
            if jobs == 1:  # in this thread, which gets interrupts
                for group in groups:
                    convert_together(group)
                return
            with ThreadPoolExecutor(jobs) as pool:
                futures = [pool.submit(copy_context().run, convert_together, g) for g in groups]
                try:
                    for future in futures:
                        future.result()
                except BaseException:  # an interrupt stops running models too
                    pool.shutdown(wait=False, cancel_futures=True)
                    given.stop()
                    raise
    finally:
        done = (Outcome.PUBLISHED, Outcome.PROVEN)
        rows = given.listener.rows.values()
        draw_catalogue(store, {row.model for row in rows if row.outcome in done})
