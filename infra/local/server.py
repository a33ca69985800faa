"""What Prefect's server is asked and told, without Prefect: commands must answer quickly."""

from __future__ import annotations

import uuid
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import httpx

from flows.connection import MOST_ATTEMPTS
from zoo.errors import MenagerieError
from zoo.processes import birth

if TYPE_CHECKING:
    from flows.connection import Connection

_SECONDS = 60.0  # for what may wait for the database


class ApiSilent(MenagerieError):
    """Nobody answered, or not as Prefect's API does."""


def ask(connection: Connection, path: str, body: object = None, *, seconds: float = 10.0) -> Any:
    """GET a path of the API, or POST JSON to it.

    Args:
        connection: where, and with what secret.
        path: below `/api`, e.g. `/work_pools/linux-cpu`.
        body: what to POST, with the token that the API asks of whoever changes something.
        seconds: how long an answer may take.

    Returns:
        The answer's JSON; None where the server knows no such thing.

    Raises:
        ApiSilent: for everything else.
    """
    secret = "" if connection.auth is None else connection.auth.get_secret_value()
    user, _, password = secret.partition(":")
    auth = (user, password) if secret else None
    try:
        with httpx.Client(base_url=connection.api_url, auth=auth, timeout=seconds) as client:
            if body is None:
                answer = client.get(path)
            else:
                me = str(uuid.uuid4())
                token = client.get("/csrf-token", params={"client": me}).json()["token"]
                headers = {"Prefect-Csrf-Token": token, "Prefect-Csrf-Client": me}
                answer = client.post(path, json=body, headers=headers)
        if answer.status_code == HTTPStatus.NOT_FOUND:
            return None
        if answer.is_error:
            refusal = answer.status_code == HTTPStatus.UNAUTHORIZED
            fact = "refuses our secret" if refusal else "answers with an error"
            raise ApiSilent(connection.api_url, f"{fact} ({answer.status_code})")
        return answer.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError) as error:
        raise ApiSilent(connection.api_url, str(error).lower()) from error


def put_back(connection: Connection, pool: str) -> int:
    """Put runs of a pool whose process ended together with the cluster back into the queue.

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
    runs = ask(connection, "/flow_runs/filter", wanted, seconds=_SECONDS)
    lost = [run for run in runs if not _is_at_work(run["infrastructure_pid"])]
    for run in lost:
        if run["state"]["type"] == "CANCELLING":
            state = {"type": "CANCELLED", "message": "Its process has ended."}
        elif run["run_count"] < MOST_ATTEMPTS:
            message = "Its worker was ended; run again."
            state = {"type": "SCHEDULED", "name": "AwaitingRetry", "message": message}
        else:
            message = "Its worker was ended, and it was tried often enough."
            state = {"type": "CRASHED", "message": message}
        said = {"state": state, "force": True}
        ask(connection, f"/flow_runs/{run['id']}/set_state", said, seconds=_SECONDS)
    return len(lost)


def _is_at_work(process: str | None) -> bool:
    return process is not None and process.isdigit() and birth(int(process)) is not None
