"""Runs that ended with the cluster are on the server as what they are."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from infra.local.worker import put_back

if TYPE_CHECKING:
    from collections.abc import Iterator

POOL = "linux-cpu"


@contextmanager
def server_at(port: int) -> Iterator[None]:
    """Prefect's server is the one that listens there."""
    url = f"http://127.0.0.1:{port}/api"
    with temporary_settings({PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: "zoo:hush"}):
        yield


class Server(http.server.HTTPServer):
    """Prefect's API as far as it is needed: some runs, and what they are set to."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.runs: list[dict[str, Any]] = []
        self.asked: Any = None
        self.states: dict[str, dict[str, Any]] = {}


class Handler(http.server.BaseHTTPRequestHandler):
    """Refuses what comes without the token that it gave."""

    server: Server

    def do_GET(self) -> None:
        """Gives a token."""
        client = self.path.removeprefix("/api/csrf-token?client=")
        self.answer({"token": "t", "client": client, "expiration": "2100-01-01T00:00:00Z"})

    def do_POST(self) -> None:
        """Gives the runs, or takes a state."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Prefect-Csrf-Token"] != "t" or not self.headers["Authorization"]:
            self.send_error(403)
        elif self.path == "/api/flow_runs/filter":
            self.server.asked = body
            self.answer(self.server.runs)
        else:
            assert body["force"]
            self.server.states[self.path.split("/")[3]] = body["state"]
            details = {"type": "accept_details"}
            self.answer({"status": "ACCEPT", "details": details, "state": body["state"]})

    def answer(self, value: object) -> None:
        """JSON."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[Server]:
    """A server without runs."""
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        with server_at(made.server_port):
            yield made
        made.shutdown()
        thread.join()


def uuid_of(name: str) -> str:
    """The id that the server gave it."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, name))


def run(name: str, state: str, count: int, process: str | None) -> dict[str, Any]:
    """A run as the server describes it."""
    return {
        "id": uuid_of(name),
        "state": {"type": state},
        "run_count": count,
        "infrastructure_pid": process,
    }


def test_each_lost_run_gets_the_state_that_it_has(server: Server) -> None:
    """Run again while few were tried, crashed after that; a cancelled one is cancelled."""
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as ended:
        ended.wait()
    gone, here = str(ended.pid), str(os.getpid())
    server.runs = [
        run("first", "RUNNING", 1, gone),
        run("second", "RUNNING", 2, gone),
        run("third", "RUNNING", 3, gone),
        run("waiting", "PENDING", 0, None),
        run("unwanted", "CANCELLING", 1, gone),
        run("working", "RUNNING", 1, here),
    ]
    assert put_back(POOL) == 5
    states = {name: (state["type"], state["name"]) for name, state in server.states.items()}
    assert states == {
        uuid_of("first"): ("SCHEDULED", "AwaitingRetry"),
        uuid_of("second"): ("SCHEDULED", "AwaitingRetry"),
        uuid_of("third"): ("CRASHED", "Crashed"),
        uuid_of("waiting"): ("SCHEDULED", "AwaitingRetry"),
        uuid_of("unwanted"): ("CANCELLED", "Cancelled"),
    }


def test_only_runs_of_workers_are_looked_at(server: Server) -> None:
    """Of this pool, of a deployment, and under way: the runs of command lines are left alone."""
    assert put_back(POOL) == 0
    assert server.asked["work_pools"]["name"]["any_"] == [POOL]
    assert server.asked["flow_runs"]["deployment_id"] == {"is_null_": False}
    types = server.asked["flow_runs"]["state"]["type"]["any_"]
    assert set(types) == {"PENDING", "RUNNING", "CANCELLING"}


def test_a_server_that_is_away() -> None:
    """Is said, and nothing was changed."""
    with server_at(9), pytest.raises(httpx.ConnectError, match="refused"):
        put_back(POOL)
