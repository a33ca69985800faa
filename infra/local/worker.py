"""Prefect's worker, which first puts back the runs that its predecessor left.

`python -m infra.local.worker POOL ARGUMENT...` is `prefect ARGUMENT...` after that.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from prefect import State, get_client
from prefect.cli import app
from prefect.states import AwaitingRetry, Cancelled, Crashed

from flows.connection import MOST_ATTEMPTS
from zoo.processes import birth


def put_back(pool: str) -> int:
    """Put runs whose process ended with its worker back into a pool's queue; return their number.

    The server would notice by itself, but late: after its restart, an event that follows one from
    before it waits for a quarter of an hour. Call this while no worker serves the pool. Raise
    httpx.HTTPError if the server cannot be asked.
    """
    under_way = {"type": {"any_": ["PENDING", "RUNNING", "CANCELLING"]}}
    of_workers = {"state": under_way, "deployment_id": {"is_null_": False}}
    wanted = {"flow_runs": of_workers, "work_pools": {"name": {"any_": [pool]}}}
    with get_client(sync_client=True) as client:
        runs = client.request("POST", "/flow_runs/filter", json=wanted).json()
        pids = [run["infrastructure_pid"] or "" for run in runs]
        alive = [pid.isdigit() and birth(int(pid)) is not None for pid in pids]
        lost = [run for run, lives in zip(runs, alive, strict=True) if not lives]
        for run in lost:
            state: State[None] = AwaitingRetry(message="Its worker was ended; run again.")
            if run["state"]["type"] == "CANCELLING":
                state = Cancelled(message="Its process has ended.")
            elif run["run_count"] >= MOST_ATTEMPTS:
                state = Crashed(message="Its worker was ended, and it was tried often enough.")
            client.set_flow_run_state(run["id"], state, force=True)
    return len(lost)


if __name__ == "__main__":
    with suppress(Exception):  # whatever the failure: the automations will handle them later
        put_back(sys.argv.pop(1))
    app()
