"""Prefect's API without Prefect, whose import takes longer than what is asked here."""

from __future__ import annotations

import uuid
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import httpx

from flows.connection import MOST_ATTEMPTS
from zoo.errors import MenagerieError
from zoo.processes import birth

if TYPE_CHECKING:
    from flows.connection import ClusterState

_UNDER_WAY = {"any_": ["PENDING", "RUNNING", "CANCELLING"]}


def ask(cluster: ClusterState, path: str, body: object = None, *, seconds: float = 10.0) -> Any:
    """GET a path of the API such as `/work_pools/linux-cpu`, or POST JSON to it.

    Returns:
        The answer's JSON; None where the server knows no such thing.

    Raises:
        MenagerieError: there is no answer, or not one as Prefect's API gives.
    """
    auth = httpx.BasicAuth(*cluster.api_auth.get_secret_value().split(":", 1))
    try:
        with httpx.Client(base_url=cluster.api_url, auth=auth, timeout=seconds) as client:
            if body is None:
                answer = client.get(path)
            else:  # changes need a token besides
                me = str(uuid.uuid4())
                token = client.get("/csrf-token", params={"client": me}).json()["token"]
                headers = {"Prefect-Csrf-Token": token, "Prefect-Csrf-Client": me}
                answer = client.post(path, json=body, headers=headers)
        if answer.status_code == HTTPStatus.NOT_FOUND:
            return None
        if answer.is_error:
            raise MenagerieError(cluster.api_url, f"answers with an error ({answer.status_code})")
        return answer.json()
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, KeyError) as error:
        raise MenagerieError(cluster.api_url, str(error).lower()) from error


def put_back(cluster: ClusterState, pool: str) -> int:
    """Put runs of a pool whose process ended together with its worker back into the queue.

    The server would notice by itself, but late: an event whose predecessor it saw before it was
    restarted waits for a quarter of an hour. To be called while no worker serves the pool.

    Returns:
        How many there were.

    Raises:
        MenagerieError: if the server cannot be asked.
    """
    of_workers = {"state": {"type": _UNDER_WAY}, "deployment_id": {"is_null_": False}}
    wanted = {"flow_runs": of_workers, "work_pools": {"name": {"any_": [pool]}}}
    runs = ask(cluster, "/flow_runs/filter", wanted, seconds=60)
    pids = [run["infrastructure_pid"] or "" for run in runs]
    lost = [r for r, p in zip(runs, pids, strict=True) if not p.isdigit() or birth(int(p)) is None]
    for run in lost:
        if run["state"]["type"] == "CANCELLING":
            state = {"type": "CANCELLED", "message": "Its process has ended."}
        elif run["run_count"] < MOST_ATTEMPTS:
            message = "Its worker was ended; run again."
            state = {"type": "SCHEDULED", "name": "AwaitingRetry", "message": message}
        else:
            message = "Its worker was ended, and it was tried often enough."
            state = {"type": "CRASHED", "message": message}
        place = f"/flow_runs/{run['id']}/set_state"
        ask(cluster, place, {"state": state, "force": True}, seconds=60)
    return len(lost)
