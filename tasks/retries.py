"""When Prefect tries a task again: only after failures that another try can mend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.failures import is_transient

if TYPE_CHECKING:
    from prefect import Task
    from prefect.client.schemas.objects import State, TaskRun

__all__ = ["RETRY_SECONDS", "worth_a_retry"]

RETRY_SECONDS = [2.0, 10.0, 40.0]  # a server that restarts is back within a minute


def worth_a_retry(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Whether the failure behind `state` came of a network that did not answer."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, BaseException) and is_transient(error)
