"""Runs whose process ended together with the cluster go back into the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flows.names import MOST_ATTEMPTS
from infra.local.api import ask
from zoo.processes import birth

if TYPE_CHECKING:
    from flows.connection import Connection

__all__ = ["put_back"]

_SECONDS = 60.0


def put_back(connection: Connection, pool: str) -> int:
    """Judge the runs of a pool that count as running though their process is gone.

    The server would notice by itself, but late: an event whose predecessor it saw before it was
    restarted waits for a quarter of an hour. To be called while no worker serves the pool.

    Returns:
        How many there were.

    Raises:
        ApiSilent: if the server cannot be asked.
    """
    under_way = {"state": {"type": {"any_": ["PENDING", "RUNNING", "CANCELLING"]}}}
    deployed = {"deployment_id": {"is_null_": False}}
    wanted = {"flow_runs": under_way | deployed, "work_pools": {"name": {"any_": [pool]}}}
    lost = [
        run
        for run in ask(connection, "/flow_runs/filter", wanted, seconds=_SECONDS)
        if not _is_at_work(run["infrastructure_pid"])
    ]
    for run in lost:
        said = {"state": _verdict(run), "force": True}
        ask(connection, f"/flow_runs/{run['id']}/set_state", said, seconds=_SECONDS)
    return len(lost)


def _verdict(run: dict[str, Any]) -> dict[str, str]:
    """The state that a lost run has in truth."""
    if run["state"]["type"] == "CANCELLING":
        return {"type": "CANCELLED", "message": "Its process has ended."}
    if run["run_count"] < MOST_ATTEMPTS:
        message = "Its worker was ended; run again."
        return {"type": "SCHEDULED", "name": "AwaitingRetry", "message": message}
    return {"type": "CRASHED", "message": "Its worker was ended, and it was tried often enough."}


def _is_at_work(process: str | None) -> bool:
    return process is not None and process.isdigit() and birth(int(process)) is not None
