"""The flow that converts many models, and judges every one of them itself."""

import dataclasses
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Annotated

from prefect import State, flow, tags
from prefect.states import Failed
from pydantic import Field

from flows.artifacts import leave_artifact
from flows.convert_model import convert_model
from flows.listener import Recorder
from flows.parameters import ConversionOptions
from flows.plan import PlannedModel, crashed_row, failed_row, plan, skipped_row
from flows.reports import refresh_index
from flows.results import ModelResult, RunResult, results_markdown
from flows.settings import NOTHING_KEPT, state_error
from flows.workplace import Workplace, use_workplace, workplace
from tasks.failures import explain
from zoo.errors import MenagerieError
from zoo.spec import Target

__all__ = ["convert_zoo"]


@flow(name="convert-zoo", **NOTHING_KEPT)
def convert_zoo(
    models: Annotated[
        list[str],
        Field(description="Names and globs. Empty, and no tags: the default selection."),
    ] = [],  # noqa: B006 - Prefect reads the default for its form; never changed
    selected_tags: Annotated[
        list[str], Field(title="Tags", description="All models with one of these tags")
    ] = [],  # noqa: B006
    targets: Annotated[list[Target], Field(description="Empty: all that a model supports")] = [],  # noqa: B006
    options: ConversionOptions = ConversionOptions(),  # noqa: B008 - frozen
    jobs: Annotated[int, Field(ge=1, le=64, description="Models converted at a time")] = 1,
) -> RunResult | State[RunResult]:
    """Convert models one after another, or `jobs` at a time.

    A model that fails never stops the others; the table at the end is complete. The run's state is
    failed if any model did, and holds the table all the same: call it with `return_state`.
    """
    began = time.perf_counter()
    planned = plan(models, targets, options, tags=selected_tags)
    results = _convert_all(planned, options, jobs)
    page = refresh_index()
    run = RunResult(
        results=tuple(results),
        store=options.store_url,
        report=str(page) if page is not None else None,
        seconds=time.perf_counter() - began,
    )
    leave_artifact(
        "convert-zoo", f"Conversion run: {run.summary}", lambda: results_markdown(results)
    )
    if not run.succeeded:
        return Failed(message=run.summary, data=run)
    return run


def _convert_all(
    planned: list[PlannedModel], options: ConversionOptions, jobs: int
) -> list[ModelResult]:
    place = workplace()
    recorder = Recorder(place.listener)

    def one(model: PlannedModel) -> ModelResult:
        return _convert_one(model, options, recorder)

    with use_workplace(dataclasses.replace(place, listener=recorder)):
        if jobs == 1:  # in this thread, where an interrupt arrives
            return [one(model) for model in planned]
        with ThreadPoolExecutor(jobs) as pool:
            futures = [pool.submit(copy_context().run, one, model) for model in planned]
            with _ended_by_interrupt(pool, place):
                return [future.result() for future in futures]


def _convert_one(
    planned: PlannedModel, options: ConversionOptions, recorder: Recorder
) -> ModelResult:
    """Run the child flow and judge it; whatever happens, there is a row."""
    key = (planned.model, planned.target)
    began = time.perf_counter()
    if planned.error is not None:
        recorder.model_ended(failed_row(planned))
    elif planned.in_store:
        recorder.model_ended(skipped_row(planned))
    else:
        error = _run_child(planned, options)
        if key not in recorder.rows:
            recorder.model_ended(crashed_row(planned, error, time.perf_counter() - began))
    return recorder.rows[key]


def _run_child(planned: PlannedModel, options: ConversionOptions) -> MenagerieError:
    """Run the flow of one model; what it returns counts only if the model left no row."""
    try:
        with tags(planned.model, planned.target.value):
            state = convert_model(planned.model, planned.target, options, return_state=True)
    except Exception as error:  # noqa: BLE001 - Prefect's API can fail in any way
        return explain(error, "Prefect")
    return state_error(state)


@contextmanager
def _ended_by_interrupt(pool: ThreadPoolExecutor, place: Workplace) -> Iterator[None]:
    """An interrupt ends the models at work too, instead of waiting for them."""
    try:
        yield
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        place.stop()
        raise
