"""How our flows are declared to Prefect, and run on the embedded API."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypedDict

from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

from tasks.failures import explain
from zoo.errors import MenagerieError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prefect import State

__all__ = ["NOTHING_KEPT", "state_error", "without_heartbeats"]


class _ResultOptions(TypedDict):
    persist_result: bool
    result_serializer: str


# Products go to our own store, by content. What Prefect writes all the same (an exception that a
# flow raised) is JSON and not its default, a pickle.
NOTHING_KEPT: _ResultOptions = {"persist_result": False, "result_serializer": "json"}


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
