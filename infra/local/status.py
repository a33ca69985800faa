"""The parts of the local cluster, and how each of them is: a look a part, none of which raises."""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from flows.connection import local_connection
from flows.local_cluster import (
    ACCESS_KEY,
    BUCKET,
    ClusterState,
    Credentials,
    cluster_folder,
    running,
)
from flows.machine.health import Check, Health
from infra.local.api import ApiSilent, ask
from infra.local.processes import POOL, PROCESSES, last_line, log_path
from infra.wanted import load_wanted
from menagerie.store.s3_options import S3Options, Secret
from zoo.errors import MenagerieError

if TYPE_CHECKING:
    from collections.abc import Callable

    from flows.connection import Connection
    from zoo.store.s3 import S3Objects

__all__ = ["PARTS", "ClusterStatus", "Part", "bucket", "look_at", "status"]

_UP = "Run `zoo up`"
_LOOK_SECONDS = 5.0


class ClusterStatus(BaseModel):
    """The whole of it; never holds a secret."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    healthy: bool
    ui: str | None = None
    api: str | None = None
    store: str | None = None
    folder: str
    checks: tuple[Check, ...]


@dataclass(frozen=True)
class Part:
    """Some processes, and how to see whether they do what they are for; `look` may raise."""

    name: str
    processes: tuple[str, ...]
    look: Callable[[ClusterState, Connection], str]  # what to say where all is well


class _NotWell(Exception):
    def __init__(self, detail: str, advice: str = _UP) -> None:
        super().__init__(detail)
        self.advice = advice


def status() -> ClusterStatus:
    """Look at every part."""
    folder = str(cluster_folder())
    try:
        state, credentials = ClusterState.load(), Credentials.load()
    except MenagerieError as error:
        check = Check(name="state", health=Health.FAIL, detail=str(error))
        return ClusterStatus(healthy=False, folder=folder, checks=(check,))
    if state is None or credentials is None or not state.up:
        check = Check(name="cluster", health=Health.FAIL, detail="is down", advice=_UP)
        return ClusterStatus(healthy=False, folder=folder, checks=(check,))
    connection = local_connection(state, credentials)
    checks = tuple(look_at(part, state, connection) for part in PARTS)
    return ClusterStatus(
        healthy=all(check.health is Health.OK for check in checks),
        ui=state.ui_url,
        api=state.api_url,
        store=state.store,
        folder=folder,
        checks=checks,
    )


def look_at(part: Part, state: ClusterState, connection: Connection) -> Check:
    """How a part is."""
    if ended := sorted(set(part.processes) - set(running())):
        detail, advice = f"{ended[0]} has ended: {last_line(log_path(ended[0]))}", _UP
        return Check(name=part.name, health=Health.FAIL, detail=detail, advice=advice)
    try:
        detail = part.look(state, connection)
        return Check(name=part.name, health=Health.OK, detail=detail)
    except _NotWell as error:
        detail, advice = str(error), error.advice
    except (ApiSilent, MenagerieError, OSError) as error:
        detail, advice = str(error), _UP
    return Check(name=part.name, health=Health.FAIL, detail=detail, advice=advice)


def bucket(connection: Connection) -> S3Objects:
    """The cluster's store."""
    from zoo.store.s3 import S3Objects

    secret = connection.s3_secret
    options = S3Options(
        endpoint=connection.s3_endpoint,
        access_key=Secret(ACCESS_KEY),
        secret_key=None if secret is None else Secret(secret.get_secret_value()),
        ca_bundle=connection.ca_bundle,
        attempts=1,
    )
    return S3Objects(BUCKET, "zoo", options)


def _s3(state: ClusterState, connection: Connection) -> str:
    """A question that needs the secret, TLS and the bucket."""
    bucket(connection).list_keys("probe/")
    return f"{state.store} at {state.s3_endpoint}"


def _server(state: ClusterState, connection: Connection) -> str:
    try:
        version = ask(connection, "/admin/version", seconds=_LOOK_SECONDS)
    except ApiSilent as silence:
        advice = f"See {log_path('server')}; `zoo down` and `zoo up` start it anew"
        raise _NotWell(f"{state.api_url}: {silence}", advice) from silence
    return f"Prefect {version} at {state.ui_url}, runs kept in {state.database}"


def _deployments(_: ClusterState, connection: Connection) -> str:
    wanted = load_wanted().deployments
    missing = [
        str(one)
        for one in wanted
        if ask(connection, f"/deployments/name/{one.flow}/{one.name}") is None
    ]
    if missing:
        raise _NotWell(f"the server lacks {', '.join(missing)}")
    return ", ".join(one.name for one in wanted)


def _worker(state: ClusterState, connection: Connection) -> str:
    """The process says that it asks for work, and the server says that it hears it."""
    pool = ask(connection, f"/work_pools/{POOL}") or {}
    if pool.get("is_paused"):
        raise _NotWell(f"the pool {POOL} is paused", "Resume it in the UI")
    log = log_path("worker")
    silent = _NotWell(
        f"asks for no work: {last_line(log)}",
        f"See {log}; `zoo down` and `zoo up` start it anew",
    )
    if pool.get("status") != "READY":
        raise silent
    try:
        url = f"http://127.0.0.1:{state.ports['worker']}/health"
        with urllib.request.urlopen(url, timeout=_LOOK_SECONDS):
            return f"serves the pool {POOL}"
    except OSError:
        raise silent from None


PARTS = (
    Part("s3", tuple(name for name in PROCESSES if name.startswith("s3-")), _s3),
    Part("server", ("server",), _server),
    Part("deployments", (), _deployments),
    Part("worker", ("worker",), _worker),
)
