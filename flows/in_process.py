"""Converting in this process, one task a model."""

from __future__ import annotations

import dataclasses
import math
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING

from flows.convert_model import convert_in_task
from flows.outcome.results import Outcome
from flows.plan import crashed_row, timed_out_row
from flows.services import Services, services, use_services
from tasks.failures import explain
from tasks.model_process import shared_model
from tasks.publish import draw_catalogue
from zoo.errors import MenagerieError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flows.parameters import ConversionOptions
    from flows.plan import PlannedModel
    from flows.services import Recorder


def convert_here(
    work: Sequence[PlannedModel],
    options: ConversionOptions,
    recorder: Recorder,
    jobs: int = 1,
    until: float = math.inf,
) -> None:
    """Convert models one after another, or `jobs` at a time; each leaves a row with `recorder`.

    A model is pulled and exported once for all targets, unless there are fewer models than jobs.

    What has not begun at `until`, by the monotonic clock, has timed out. The catalogue is drawn at
    the end, also with what the run had published before it crashed and began again.
    """
    given = dataclasses.replace(
        services(), listener=recorder, planned={(one.model, one.target): one for one in work}
    )

    def convert(one: PlannedModel) -> None:
        if time.monotonic() > until:
            recorder.model_ended(timed_out_row(one, "the run's hours are over"))
        else:
            _convert(one, options, recorder)

    def convert_together(group: Sequence[PlannedModel]) -> None:
        with (
            shared_model(given.hold) as hold,
            use_services(dataclasses.replace(given, hold=hold)),
        ):
            for one in group:
                convert(one)

    groups = _by_model(work)
    if len(groups) < jobs:
        groups = [[one] for one in work]
    with use_services(given), _catalogue_drawn(options.store_url, recorder):
        if jobs == 1:  # in this thread, where an interrupt arrives
            for group in groups:
                convert_together(group)
            return
        with ThreadPoolExecutor(jobs) as pool:
            futures = [pool.submit(copy_context().run, convert_together, each) for each in groups]
            with _ended_by_interrupt(pool, given):
                for future in futures:
                    future.result()


def _by_model(work: Sequence[PlannedModel]) -> list[list[PlannedModel]]:
    groups: dict[str, list[PlannedModel]] = {}
    for one in work:
        groups.setdefault(one.model, []).append(one)
    return list(groups.values())


@contextmanager
def _catalogue_drawn(store: str, recorder: Recorder) -> Iterator[None]:
    """Draw the catalogue of what was published when the block ends, however it ends."""
    try:
        yield
    finally:
        published = (Outcome.PUBLISHED, Outcome.PROVEN)
        draw_catalogue(
            store, {row.model for row in recorder.rows.values() if row.outcome in published}
        )


def _convert(one: PlannedModel, options: ConversionOptions, recorder: Recorder) -> None:
    """Convert in a task of its own; whatever happens, there is a row."""
    began = time.perf_counter()
    try:
        convert_in_task(one, options)
    except Exception as error:  # noqa: BLE001 - Prefect's API can fail in any way
        if (one.model, one.target) not in recorder.rows:
            ours = error if isinstance(error, MenagerieError) else explain(error, "Prefect")
            recorder.model_ended(crashed_row(one, ours, time.perf_counter() - began))


@contextmanager
def _ended_by_interrupt(pool: ThreadPoolExecutor, given: Services) -> Iterator[None]:
    """An interrupt ends the models at work too, instead of waiting for them."""
    try:
        yield
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        given.stop()
        raise
