"""How our flows are declared to Prefect, and run on the embedded API."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypedDict

from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["NOTHING_KEPT", "without_heartbeats"]


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
