"""How the local cluster is: a check a part, none of which raises."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from flows.cluster import server, store
from flows.cluster.api import ApiSilent, ask
from flows.cluster.connection import local_connection
from flows.cluster.credentials import Credentials
from flows.cluster.plan import load_plan
from flows.cluster.processes import alive, last_line, log_path
from flows.cluster.state import BUCKET, ClusterState, cluster_folder
from flows.cluster.up import worker_answers
from flows.machine.health import Check, Health
from zoo.errors import MenagerieError

if TYPE_CHECKING:
    from flows.cluster.connection import Connection

__all__ = ["ClusterStatus", "status"]

_UP = "Run `zoo up`"


class ClusterStatus(BaseModel):
    """The whole of it; never holds a secret."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    healthy: bool
    ui: str | None = None
    api: str | None = None
    store: str | None = None
    folder: str
    checks: tuple[Check, ...]


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
    checks = (
        _s3(state, connection),
        _server(state, connection),
        _deployments(connection),
        _worker(state, connection),
    )
    return ClusterStatus(
        healthy=all(check.health is Health.OK for check in checks),
        ui=state.ui_url,
        api=state.api_url,
        store=state.store,
        folder=folder,
        checks=checks,
    )


def _s3(state: ClusterState, connection: Connection) -> Check:
    """Every process, and a question that needs the secret, TLS and the bucket."""
    for name in (n for n in state.processes if n.startswith("s3-")):
        if not alive(state.processes[name]):
            return _ended(name)
    try:
        from zoo.store.s3 import S3Objects

        options = replace(store.options(connection), attempts=1)
        S3Objects(BUCKET, "zoo", options).list_keys("probe/")
    except (MenagerieError, ImportError) as error:
        return Check(name="s3", health=Health.FAIL, detail=str(error), advice=_UP)
    detail = f"{state.store} at {state.s3_endpoint}"
    return Check(name="s3", health=Health.OK, detail=detail)


def _server(state: ClusterState, connection: Connection) -> Check:
    if not alive(state.processes.get("server")):
        return _ended("server")
    try:
        version = ask(connection, "/admin/version")
    except ApiSilent as silence:
        detail = f"{state.api_url}: {silence}"
        advice = f"See {log_path('server')}; `zoo down` and `zoo up` start it anew"
        return Check(name="server", health=Health.FAIL, detail=detail, advice=advice)
    detail = f"Prefect {version} at {state.ui_url}, runs kept in {state.database}"
    return Check(name="server", health=Health.OK, detail=detail)


def _deployments(connection: Connection) -> Check:
    try:
        wanted = load_plan().deployments
        missing = [
            str(one)
            for one in wanted
            if ask(connection, f"/deployments/name/{one.flow}/{one.name}") is None
        ]
    except (ApiSilent, MenagerieError) as error:
        return Check(name="deployments", health=Health.FAIL, detail=str(error), advice=_UP)
    if missing:
        detail = f"the server lacks {', '.join(missing)}"
        return Check(name="deployments", health=Health.FAIL, detail=detail, advice=_UP)
    names = ", ".join(one.name for one in wanted)
    return Check(name="deployments", health=Health.OK, detail=names)


def _worker(state: ClusterState, connection: Connection) -> Check:
    """The process says that it asks for work, and the server says that it hears it."""
    if not alive(state.processes.get("worker")):
        return _ended("worker")
    try:
        pool = ask(connection, f"/work_pools/{server.POOL}") or {}
    except ApiSilent as silence:
        return Check(name="worker", health=Health.FAIL, detail=f"the server: {silence}", advice=_UP)
    log = log_path("worker")
    if pool.get("is_paused"):
        advice = "Resume it in the UI"
        detail = f"the pool {server.POOL} is paused"
        return Check(name="worker", health=Health.FAIL, detail=detail, advice=advice)
    if pool.get("status") != "READY" or not worker_answers(state):
        detail = f"asks for no work: {last_line(log)}"
        advice = f"See {log}; `zoo down` and `zoo up` start it anew"
        return Check(name="worker", health=Health.FAIL, detail=detail, advice=advice)
    return Check(name="worker", health=Health.OK, detail=f"serves the pool {server.POOL}")


def _ended(name: str) -> Check:
    detail = f"{name} has ended: {last_line(log_path(name))}"
    return Check(name=name.partition("-")[0], health=Health.FAIL, detail=detail, advice=_UP)
