"""Bringing the local cluster up: whatever lacks is made or started, the rest is left alone."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pydantic import SecretStr

from flows.cluster import server, store
from flows.cluster.api import ApiSilent, ask
from flows.cluster.certificates import ensure_certificate
from flows.cluster.connection import local_connection
from flows.cluster.credentials import ACCESS_KEY, Credentials
from flows.cluster.lost_runs import put_back
from flows.cluster.plan import load_plan
from flows.cluster.ports import free_ports, is_free
from flows.cluster.processes import alive, child_environment, last_line, log_path, spawn
from flows.cluster.state import ClusterState, Database, cluster_folder, state_path
from flows.cluster.swift import STORAGE, SwiftServer, answers
from zoo.errors import MenagerieError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from flows.cluster.plan import Plan

__all__ = ["Change", "PartChange", "locked", "swift_server", "up", "worker_answers"]

_START_SECONDS = 180.0  # a fresh database took 14 s on two idle cores, and much more on busy ones
_APPLY_SECONDS = 300.0
_POLL_SECONDS = 0.1
_API_PORT = 4200  # Prefect's own, where it is free
_LOOK_SECONDS = 5.0


class Change(StrEnum):
    """What can be done about a part."""

    STARTED = "started"
    APPLIED = "applied"
    UNCHANGED = "unchanged"


@dataclass(frozen=True)
class PartChange:
    """What was done about one part of the cluster."""

    name: str
    change: Change
    detail: str


def up(
    *,
    port: int | None = None,
    database: str | None = None,
    status: Callable[[str], None] = lambda _: None,
) -> list[PartChange]:
    """Bring the cluster up.

    Args:
        port: of Prefect's API and UI; None: the one of last time, at first 4200 or any free one.
        database: "sqlite" or the address of a PostgreSQL database, for Prefect; None: as last time,
            at first SQLite.
        status: told what is being waited for.

    Returns:
        What was changed, part by part.

    Raises:
        MenagerieError: if something does not start; what runs by then goes on, and a second call
            continues from there.
    """
    with locked():
        state, credentials = _prepared(port, database)
        starter = _Starter(state, credentials, status)
        return [starter.s3(), starter.server(), starter.deployments(), starter.worker()]


@contextmanager
def locked() -> Iterator[None]:
    """Only one command at a time changes the cluster.

    Raises:
        MenagerieError: if another does.
    """
    cluster_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    with (cluster_folder() / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fact = "another `zoo up` or `zoo down` is at work"
            raise MenagerieError(str(cluster_folder()), fact, "Wait for it") from None
        yield


def swift_server(state: ClusterState) -> SwiftServer:
    """The S3 server: everything but its proxy is for itself, and the proxy speaks TLS alone."""
    certificate = ensure_certificate(cluster_folder() / "tls")
    ports = {name: state.ports[name] for name in (*STORAGE, "s3")}
    return SwiftServer(cluster_folder() / "s3", ports, ACCESS_KEY, {"s3": certificate})


def worker_answers(state: ClusterState) -> bool:
    """Whether the worker says that it asks for work."""
    url = f"http://127.0.0.1:{state.ports['worker']}/health"
    try:
        with urllib.request.urlopen(url, timeout=_LOOK_SECONDS):
            return True
    except OSError:
        return False


class _Starter:
    """Starts parts one after another, and keeps the state file true at every step."""

    def __init__(
        self, state: ClusterState, credentials: Credentials, status: Callable[[str], None]
    ) -> None:
        self._state = state
        self._credentials = credentials
        self._status = status
        self._connection = local_connection(state, credentials)

    def s3(self) -> PartChange:
        swift = swift_server(self._state)
        swift.prepare()
        secret = self._credentials.s3_secret.get_secret_value()
        started = [
            self._start(name, f"s3-{name}", swift.command(name), swift.environment(name, secret))
            for name in swift.ports
        ]
        endpoint, authority = self._state.s3_endpoint, self._connection.ca_bundle
        names = [f"s3-{name}" for name in swift.ports]
        self._await("the S3 server", names, lambda: answers(endpoint, authority))
        store.ensure_bucket(self._connection)
        return PartChange("s3", _started(any(started)), f"{self._state.store} at {endpoint}")

    def server(self) -> PartChange:
        started = self._start(
            "api",
            "server",
            server.server_command(self._state),
            server.server_environment(self._state, self._credentials),
        )
        self._await("Prefect's server", ["server"], self._server_answers)
        detail = f"{self._state.ui_url}, runs kept in {self._state.database}"
        return PartChange("server", _started(started), detail)

    def deployments(self) -> PartChange:
        plan = load_plan()
        detail = f"{len(plan.deployments)} deployments, {len(plan.work_pools)} work pools"
        if self._state.applied == plan.digest and self._all_deployed(plan):
            return PartChange("deployments", Change.UNCHANGED, detail)
        self._status("telling the server of work pools, deployments and automations")
        values = server.quiet_environment() | self._connection.prefect_environment()
        log = log_path("apply")
        with log.open("wb") as output:
            code = subprocess.run(
                [sys.executable, "-m", "flows.cluster.apply"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=_APPLY_SECONDS,
                check=False,
                env=child_environment(values),
            ).returncode
        if code != 0:
            raise MenagerieError("deployments", last_line(log), f"The whole story is in {log}")
        self._keep(applied=plan.digest)
        return PartChange("deployments", Change.APPLIED, detail)

    def worker(self) -> PartChange:
        if not alive(self._state.processes.get("worker")):
            with suppress(ApiSilent):  # the automations will see to them too, only later
                put_back(self._connection, server.POOL)
        started = self._start(
            "worker",
            "worker",
            server.worker_command(),
            server.worker_environment(self._connection, self._state.ports["worker"]),
        )
        self._await("the worker", ["worker"], lambda: worker_answers(self._state))
        return PartChange("worker", _started(started), f"serves the pool {server.POOL}")

    def _start(
        self, port: str, name: str, command: Sequence[str], environment: Mapping[str, str]
    ) -> bool:
        """Start a process unless it runs; returns whether it had to be started."""
        if alive(self._state.processes.get(name)):
            return False
        number = self._state.ports[port]
        if not is_free(number):
            fact = f"is taken by another program, and {name} needs it"
            other = f"remove {state_path()} to have ports chosen anew"
            advice = f"End it, or {'give another --port' if port == 'api' else other}"
            raise MenagerieError(f"port {number}", fact, advice)
        self._status(f"starting {name}")
        record = spawn(name, command, environment)
        self._keep(processes={**self._state.processes, name: record})
        return True

    def _await(self, what: str, names: Sequence[str], healthy: Callable[[], bool]) -> None:
        if healthy():
            return
        self._status(f"waiting for {what}")
        deadline = time.monotonic() + _START_SECONDS
        while not healthy():
            for name in names:
                if not alive(self._state.processes.get(name)):
                    log = log_path(name)
                    raise MenagerieError(
                        name, f"ended: {last_line(log)}", f"The whole story is in {log}"
                    )
            if time.monotonic() > deadline:
                logs = ", ".join(str(log_path(name)) for name in names)
                advice = f"See {logs}; `zoo down` and `zoo up` start it anew"
                raise MenagerieError(what, f"did not answer for {_START_SECONDS:.0f} s", advice)
            time.sleep(_POLL_SECONDS)

    def _server_answers(self) -> bool:
        try:
            return ask(self._connection, "/admin/version", seconds=_LOOK_SECONDS) is not None
        except ApiSilent:
            return False

    def _all_deployed(self, plan: Plan) -> bool:
        try:
            return all(
                ask(self._connection, f"/deployments/name/{d.flow}/{d.name}") is not None
                for d in plan.deployments
            )
        except ApiSilent:
            return False

    def _keep(self, **changes: object) -> None:
        self._state = self._state.model_copy(update=changes)
        self._state.save()


def _started(was: bool) -> Change:
    return Change.STARTED if was else Change.UNCHANGED


def _prepared(port: int | None, database: str | None) -> tuple[ClusterState, Credentials]:
    """State and secrets: those of last time where there are any, changed as asked."""
    load_plan()
    last = ClusterState.load() or _first_state(port)
    secrets = Credentials.load() or Credentials.make()
    state, credentials = _with_database(last, secrets, database)
    if port is not None:
        state = state.model_copy(update={"ports": {**state.ports, "api": port}})
    if (state, credentials) != (last, secrets) and any(map(alive, last.processes.values())):
        fact = "the cluster runs with another port or database"
        raise UsageError("zoo up", fact, "Run `zoo down` first")
    credentials.save()
    state.save()
    return state, credentials


def _with_database(
    state: ClusterState, credentials: Credentials, database: str | None
) -> tuple[ClusterState, Credentials]:
    if database is None:
        if state.database is Database.POSTGRES and credentials.database_url is None:
            fact = "its address went with the secrets"
            raise UsageError(
                "the PostgreSQL database", fact, "Set MENAGERIE_POSTGRES again, or give --sqlite"
            )
        return state, credentials
    if database == Database.SQLITE:
        kind, url = Database.SQLITE, None
    else:
        kind, url = Database.POSTGRES, SecretStr(server.database_url(database))
    applied = state.applied if url == credentials.database_url else ""
    state = state.model_copy(update={"database": kind, "applied": applied})
    return state, credentials.model_copy(update={"database_url": url})


def _first_state(port: int | None) -> ClusterState:
    names = ("api", "worker", "s3", *STORAGE)
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    if port is None and is_free(_API_PORT):
        ports["api"] = _API_PORT
    return ClusterState(database=Database.SQLITE, ports=ports)
