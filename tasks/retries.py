"""How work becomes a Prefect task, and when it is tried again: where a retry can help."""

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

RETRY_SECONDS = [2.0, 10.0, 40.0]  # a server that restarts is back within a minute


def run_as_task(name: str, work: Callable[[], T], *, retried: bool, run_name: str = "") -> T:
    """Do `work` in a Prefect task; nothing of it or of its result goes to Prefect's storage.

    With `retried` it is tried again after a network did not answer. `run_name` is what this run of
    the task is called; empty: the task's name and some digits.
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
    # Without its run's tags: for those it would hold a place under limits that no one sets.
    with TagsContext(current_tags=set()):
        return made()


def worth_a_retry(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Return whether `state` failed because a network did not answer."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, BaseException) and is_transient(error)


def patiently(ask: Callable[[], T]) -> T:
    """Return what `ask` returns, inside a flow; a store that is away for a minute is asked again.

    Raise StoreUnreachable if it stays away.
    """
    for pause in RETRY_SECONDS:
        try:
            return ask()
        except StoreUnreachable as error:
            get_run_logger().warning("%s: asking again in %g s", error, pause)
            time.sleep(pause)
    return ask()
