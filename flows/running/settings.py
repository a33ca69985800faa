"""How our flows are declared to Prefect, and run on the embedded API."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypedDict

from prefect.context import TagsContext
from prefect.runtime import flow_run
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from prefect.states import Failed

from flows.running.taken_over import give_way
from tasks.failures import explain
from zoo.errors import MenagerieError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prefect import State

__all__ = [
    "NOTHING_KEPT",
    "RunFailed",
    "failed",
    "result_of",
    "state_error",
    "without_heartbeats",
    "without_tags",
]


class _ResultOptions(TypedDict):
    persist_result: bool
    result_serializer: str


# Products go to our own store, by content. What Prefect writes all the same (an exception that a
# flow raised) is JSON and not its default, a pickle.
NOTHING_KEPT: _ResultOptions = {"persist_result": False, "result_serializer": "json"}


class RunFailed(MenagerieError):
    """A run that did not do all it was asked for; `result` is complete all the same."""

    def __init__(self, place: str, fact: str, result: object) -> None:
        super().__init__(place, fact, "Its row and its report say more")
        self.result = result


def failed(message: str, result: object) -> State[Any]:
    """The final state of a run that failed, with its result.

    It is returned and not raised: what a flow raises, Prefect writes to its storage. The data is an
    exception, since Prefect takes nothing else for what a failed run has to say.

    Raises:
        Abort: another process has begun the run again, and speaks for it.
    """
    give_way()
    return Failed(message=message, data=RunFailed(str(flow_run.get_name()), message, result))


def result_of(state: State[Any]) -> Any:
    """The result of a run, whether it succeeded or not; an exception if it left none."""
    outcome = state.result(raise_on_failure=False)
    return outcome.result if isinstance(outcome, RunFailed) else outcome


@contextmanager
def without_heartbeats(*, when: bool) -> Iterator[None]:
    """Send no heartbeats for the flows in the block, where nobody watches them.

    Waiting for the thread that sends them costs up to a second at the end of every flow run.
    """
    if not when:
        yield
        return
    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        yield


@contextmanager
def without_tags() -> Iterator[None]:
    """Give the tasks in the block none of the tags of the run that they belong to.

    For its tags a task asks the server for a place under their limits, and holds a lease that has
    to be renewed while it works: requests for limits that nobody sets.
    """
    with TagsContext(current_tags=set()):
        yield


def state_error(state: State[Any]) -> MenagerieError:
    """What a run's final state says went wrong, as an error of our tree."""
    try:
        outcome = state.result(raise_on_failure=False)
    except Exception as error:  # noqa: BLE001 - its data can be lost on the way
        return explain(error, "Prefect")
    if isinstance(outcome, MenagerieError):
        return outcome
    if isinstance(outcome, BaseException):
        return explain(outcome, "Prefect")
    return MenagerieError("Prefect", f"the run ended {state.name}", "Its logs say why")
