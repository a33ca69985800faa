"""Questions to Prefect's API without Prefect, for commands that must answer quickly."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
import uuid
from http import HTTPStatus
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flows.cluster.connection import Connection

__all__ = ["ApiSilent", "ask", "tell"]

_SECONDS = 10.0


class ApiSilent(Exception):
    """Nobody answered, or not as Prefect's API does; says why in a few words."""


def ask(connection: Connection, path: str, *, seconds: float = _SECONDS) -> Any:
    """GET a path of the API.

    Args:
        connection: where, and with what secret.
        path: below `/api`, e.g. `/work_pools/linux-cpu`.
        seconds: how long an answer may take.

    Returns:
        The answer's JSON; None where the server knows no such thing.

    Raises:
        ApiSilent: for everything else.
    """
    return _answer(connection, urllib.request.Request(f"{connection.api_url}{path}"), seconds)  # noqa: S310 - checked there


def tell(connection: Connection, path: str, body: object, *, seconds: float = _SECONDS) -> Any:
    """POST JSON to a path of the API, with the token that it asks of whoever changes something.

    Raises:
        ApiSilent: if it was not taken.
    """
    client = str(uuid.uuid4())
    token = ask(connection, f"/csrf-token?client={client}", seconds=seconds)["token"]
    request = urllib.request.Request(  # noqa: S310 - checked below
        f"{connection.api_url}{path}",
        json.dumps(body).encode(),
        {
            "Content-Type": "application/json",
            "Prefect-Csrf-Token": token,
            "Prefect-Csrf-Client": client,
        },
    )
    return _answer(connection, request, seconds)


def _answer(connection: Connection, request: urllib.request.Request, seconds: float) -> Any:
    if request.type not in {"http", "https"}:
        raise ApiSilent(f"{connection.api_url!r} is no http(s) URL")
    if connection.auth is not None:
        token = base64.b64encode(connection.auth.get_secret_value().encode()).decode()
        request.add_header("Authorization", f"Basic {token}")
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:  # noqa: S310
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            return None
        if error.code == HTTPStatus.UNAUTHORIZED:
            raise ApiSilent("it refuses our secret (401)") from error
        raise ApiSilent(f"it answers {error.code}") from error
    except (OSError, ValueError, HTTPException) as error:
        raise ApiSilent(str(getattr(error, "reason", error)).lower()) from error
