"""When Prefect tries a task again: only after failures that another try can mend."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from prefect.logging import get_run_logger

from tasks.failures import is_transient
from zoo.errors import StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from prefect import Task
    from prefect.client.schemas.objects import State, TaskRun

__all__ = ["RETRY_SECONDS", "patiently", "worth_a_retry"]

T = TypeVar("T")

RETRY_SECONDS = [2.0, 10.0, 40.0]  # a server that restarts is back within a minute


def worth_a_retry(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Whether the failure behind `state` came of a network that did not answer."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, BaseException) and is_transient(error)


def patiently(ask: Callable[[], T]) -> T:
    """What `ask` says, inside a flow; a store that is away for a minute is asked again.

    Raises:
        StoreUnreachable: it stays away.
    """
    for pause in RETRY_SECONDS:
        try:
            return ask()
        except StoreUnreachable as error:
            get_run_logger().warning("%s: asking again in %g s", error, pause)
            time.sleep(pause)
    return ask()
