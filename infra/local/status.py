"""The parts of the local cluster, and how each of them is: a look a part, none of which raises."""

from __future__ import annotations

import urllib.request
from typing import TYPE_CHECKING

from flows.connection import (
    ACCESS_KEY,
    BUCKET,
    ClusterState,
    Credentials,
    cluster_folder,
    local_connection,
    running,
)
from infra.local.processes import POOL, PROCESSES, last_line, log_path
from infra.local.server import ask
from infra.wanted import load_wanted
from zoo.base_models import Frozen
from zoo.errors import Check, Health, MenagerieError

if TYPE_CHECKING:
    from collections.abc import Callable

    from flows.connection import Connection
    from zoo.store.s3 import S3Objects

_UP = "Run `zoo up`"
_ANEW = "See {}; `zoo down` and `zoo up` start it anew"
_LOOK_SECONDS = 5.0


class ClusterStatus(Frozen):
    """The whole of it; never holds a secret."""

    healthy: bool
    ui: str | None = None
    api: str | None = None
    store: str | None = None
    folder: str
    checks: tuple[Check, ...]


def status() -> ClusterStatus:
    """Look at every part."""
    folder = str(cluster_folder())
    down = Check("cluster", Health.FAIL, "is down", _UP)
    try:
        state, credentials = ClusterState.load(), Credentials.load()
    except MenagerieError as error:
        down = Check("state", Health.FAIL, str(error))
        state = credentials = None
    if state is None or credentials is None or not state.up:
        return ClusterStatus(healthy=False, folder=folder, checks=(down,))
    connection = local_connection(state, credentials)
    checks = tuple(look_at(name, state, connection) for name in PARTS)
    return ClusterStatus(
        healthy=all(check.health is Health.OK for check in checks),
        ui=state.ui_url,
        api=state.api_url,
        store=state.store,
        folder=folder,
        checks=checks,
    )


def look_at(name: str, state: ClusterState, connection: Connection) -> Check:
    """How a part is."""
    if name in PROCESSES and name not in running():
        detail = f"has ended: {last_line(log_path(name))}"
        return Check(name, Health.FAIL, detail, _UP)
    try:
        return Check(name, Health.OK, PARTS[name](state, connection))
    except MenagerieError as error:
        detail, advice = f"{error.place}: {error.fact}", error.next_step or _UP
    except OSError as error:
        detail, advice = str(error), _UP
    return Check(name, Health.FAIL, detail, advice)


def bucket(connection: Connection) -> S3Objects:
    """The cluster's store."""
    from botocore.config import Config

    from zoo.store.s3 import S3Objects

    secret = connection.s3_secret
    return S3Objects(
        BUCKET,
        "zoo",
        endpoint_url=connection.s3_endpoint,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=None if secret is None else secret.get_secret_value(),
        config=Config(retries={"total_max_attempts": 1}),
    )


def _s3(state: ClusterState, connection: Connection) -> str:
    """A question that needs the secret, TLS and the bucket."""
    bucket(connection).list_keys("probe/")
    return f"{state.store} at {state.s3_endpoint}"


def _server(state: ClusterState, connection: Connection) -> str:
    try:
        version = ask(connection, "/admin/version", seconds=_LOOK_SECONDS)
    except MenagerieError as silence:
        advice = _ANEW.format(log_path("server"))
        raise MenagerieError(silence.place, silence.fact, advice) from silence
    return f"Prefect {version} at {state.ui_url}, runs kept in {state.database}"


def _deployments(state: ClusterState, connection: Connection) -> str:
    wanted = load_wanted().deployments
    places = {str(one): f"/deployments/name/{one.flow}/{one.name}" for one in wanted}
    missing = [name for name, place in places.items() if ask(connection, place) is None]
    if missing:
        raise MenagerieError(state.api_url, f"the server lacks {', '.join(missing)}", _UP)
    return ", ".join(one.name for one in wanted)


def _worker(state: ClusterState, connection: Connection) -> str:
    """The process says that it asks for work, and the server says that it hears it."""
    pool, log = ask(connection, f"/work_pools/{POOL}") or {}, log_path("worker")
    if pool.get("is_paused"):
        raise MenagerieError(f"the pool {POOL}", "is paused", "Resume it in the UI")
    try:
        if pool.get("status") != "READY":
            raise ConnectionError
        url = f"http://127.0.0.1:{state.ports['worker']}/health"
        with urllib.request.urlopen(url, timeout=_LOOK_SECONDS):
            return f"serves the pool {POOL}"
    except OSError:
        fact = f"asks for no work: {last_line(log)}"
        raise MenagerieError("the worker", fact, _ANEW.format(log)) from None


# What to say where all is well; each may raise. All but the deployments are processes.
PARTS: dict[str, Callable[[ClusterState, Connection], str]] = {
    "s3": _s3,
    "server": _server,
    "deployments": _deployments,
    "worker": _worker,
}
