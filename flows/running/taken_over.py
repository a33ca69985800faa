"""A run that was begun again elsewhere, while this process was cut off from the server.

Its heartbeats ended, so that the server gave this host up. Back again, what it has to say of a
failure would stand over what the other host did.
"""

from __future__ import annotations

import time
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.exceptions import Abort
from prefect.logging import get_run_logger
from prefect.runtime import flow_run

__all__ = ["give_way"]


_PATIENCE_SECONDS = 600.0  # of a line that is down; the run may be elsewhere by then
_LOOK_SECONDS = 5.0


def give_way() -> None:
    """Go on if this process is the one that has its run, or if nobody can tell for long.

    Raises:
        Abort: the run was begun again since; Prefect ends the process without a word to the server.
    """
    run = flow_run.get_id()
    if run is None:
        return
    if (_begun(run) or 0) > (flow_run.get_run_count() or 0):
        get_run_logger().warning("Another process has begun this run again: this one gives way")
        raise Abort("the run was begun again elsewhere")


def _begun(run: str) -> int | None:
    """How often, by the server; None: it does not say."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end:
        try:
            with get_client(sync_client=True) as client:
                return client.read_flow_run(UUID(run)).run_count
        except httpx.TransportError:
            time.sleep(_LOOK_SECONDS)
        except Exception:  # noqa: BLE001 - whatever it is, the state says what became of the run
            return None
    return None
