"""Prefect tasks for work, and retries where they can help."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TagsContext
from prefect.logging import get_run_logger

from tasks.failures import is_transient
from zoo.errors import StoreUnreachable

T = TypeVar("T")

RETRY_SECONDS = [2.0, 10.0, 40.0]  # a restarting server is back within a minute


def run_as_task(name: str, work: Callable[[], T], *, retried: bool, run_name: str = "") -> T:
    """Do `work` in a Prefect task; neither it nor its result goes to Prefect's storage.

    With `retried`, it is retried if a network did not answer. `run_name` is the name of this
    task run; empty: the task's name and some digits.
    """
    made = Task(
        work,
        name=name,
        task_run_name=run_name or None,
        persist_result=False,
        cache_policy=NO_CACHE,
        retries=len(RETRY_SECONDS) if retried else 0,
        retry_delay_seconds=RETRY_SECONDS,
        retry_condition_fn=worth_a_retry,
    )
    # Without its run's tags: they would occupy slots of limits that nobody sets.
    with TagsContext(current_tags=set()):
        return made()


def worth_a_retry(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Return whether `state` failed because a network did not answer."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, BaseException) and is_transient(error)


def patiently(ask: Callable[[], T]) -> T:
    """Return what `ask` returns, inside a flow; retry for a minute if a store is unreachable.

    Raise StoreUnreachable if it stays unreachable.
    """
    for pause in RETRY_SECONDS:
        try:
            return ask()
        except StoreUnreachable as error:
            get_run_logger().warning("%s: asking again in %g s", error, pause)
            time.sleep(pause)
    return ask()
