"""Questions to Prefect's API without Prefect, for commands that must answer quickly."""

from __future__ import annotations

import uuid
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from flows.connection import Connection

__all__ = ["ApiSilent", "ask"]


class ApiSilent(Exception):
    """Nobody answered, or not as Prefect's API does; says why in a few words."""


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
        if answer.status_code == HTTPStatus.UNAUTHORIZED:
            raise ApiSilent("it refuses our secret (401)")
        if answer.is_error:
            raise ApiSilent(f"it answers {answer.status_code}")
        return answer.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError) as error:
        raise ApiSilent(str(error).lower()) from error
