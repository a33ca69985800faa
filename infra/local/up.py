"""Bringing the local cluster up: whatever lacks is made or started, the rest is left alone."""

from __future__ import annotations

import fcntl
import re
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pydantic import SecretStr

from flows.connection import local_connection
from flows.local_cluster import (
    ClusterState,
    Credentials,
    Database,
    ask_manager,
    cluster_folder,
    running,
    state_path,
)
from flows.machine.health import Health
from infra.local.api import ApiSilent
from infra.local.lost_runs import put_back
from infra.local.processes import (
    POOL,
    PROCESSES,
    child_environment,
    free_ports,
    is_free,
    last_line,
    log_path,
    quiet_environment,
    start_manager,
    swift_server,
)
from infra.local.status import PARTS, bucket, look_at
from infra.local.swift import STORAGE
from infra.wanted import load_wanted
from zoo.errors import MenagerieError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flows.connection import Connection
    from infra.local.status import Part

__all__ = ["Change", "PartChange", "database_url", "locked", "up"]

_START_SECONDS = 180.0  # a fresh database took 14 s on two idle cores, and much more on busy ones
_POLL_SECONDS = 0.1
_API_PORT = 4200  # Prefect's own, where it is free
_POSTGRES = re.compile(r"^postgres(?:ql)?(?:\+asyncpg)?://(?=[^/]+/[^/]+$)")


class Change(StrEnum):
    """What can be done about a part."""

    STARTED = "started"
    APPLIED = "applied"
    UNCHANGED = "unchanged"


_CHANGES = {True: Change.STARTED, False: Change.UNCHANGED}


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
        _require_ports(state)
        swift_server(state).prepare()
        state = state.model_copy(update={"up": True})
        state.save()
        start_manager()
        connection = local_connection(state, credentials)
        return [
            (_start if part.processes else _apply)(part, state, connection, status)
            for part in PARTS
        ]


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


def database_url(given: str) -> str:
    """The address of a PostgreSQL database as Prefect's server wants it.

    Raises:
        UsageError: if it is none; the message does not repeat it, since it may hold a password.
    """
    if not _POSTGRES.match(given):
        form = "Give postgresql://user:password@host:5432/database"
        raise UsageError("--postgres", "is not the address of a PostgreSQL database", form)
    return _POSTGRES.sub("postgresql+asyncpg://", given)


def _start(
    part: Part, state: ClusterState, connection: Connection, status: Callable[[str], None]
) -> PartChange:
    """Start those of its processes that do not run, and wait until it is well."""
    known = running()
    lacking = [name for name in part.processes if name not in known]
    if "worker" in lacking:
        with suppress(ApiSilent):  # the automations will see to them too, only later
            put_back(connection, POOL)
    for name in lacking:
        status(f"starting {name}")
        ask_manager("startProcess", name, False)
    deadline, told = time.monotonic() + _START_SECONDS, False
    while True:
        if part.name == "s3":
            with suppress(MenagerieError):  # it does not answer yet
                bucket(connection).ensure_bucket()
        check = look_at(part, state, connection)
        if check.health is Health.OK:
            return PartChange(part.name, _CHANGES[bool(lacking)], check.detail)
        if not told:
            told = True
            status(f"waiting for {part.name}")
        logs = ", ".join(str(log_path(name)) for name in part.processes)
        if set(part.processes) - set(running()):
            raise MenagerieError(part.name, check.detail, f"The whole story is in {logs}")
        if time.monotonic() > deadline:
            fact = f"is not well after {_START_SECONDS:.0f} s: {check.detail}"
            advice = f"See {logs}; `zoo down` and `zoo up` start it anew"
            raise MenagerieError(part.name, fact, advice)
        time.sleep(_POLL_SECONDS)


def _apply(
    part: Part, state: ClusterState, connection: Connection, status: Callable[[str], None]
) -> PartChange:
    """Tell the server of what it does not know, or of what has changed since it was told."""
    digest = load_wanted().digest
    check = look_at(part, state, connection)
    if state.applied == digest and check.health is Health.OK:
        return PartChange(part.name, Change.UNCHANGED, check.detail)
    status("telling the server of work pools, deployments and automations")
    log = log_path("apply")
    with log.open("wb") as output:
        code = subprocess.run(
            [sys.executable, "-m", "infra.apply"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            timeout=_START_SECONDS,
            check=False,
            env=child_environment(quiet_environment() | connection.prefect_environment()),
        ).returncode
    if code != 0:
        raise MenagerieError(part.name, last_line(log), f"The whole story is in {log}")
    state.model_copy(update={"applied": digest}).save()
    return PartChange(part.name, Change.APPLIED, look_at(part, state, connection).detail)


def _require_ports(state: ClusterState) -> None:
    """Before anything is started.

    Raises:
        MenagerieError: another program listens where one of ours is to.
    """
    known = running()
    for name, process in PROCESSES.items():
        number = state.ports[process.port]
        if name not in known and not is_free(number):
            fact = f"is taken by another program, and {name} needs it"
            other = f"remove {state_path()} to have ports chosen anew"
            advice = f"End it, or {'give another --port' if process.port == 'api' else other}"
            raise MenagerieError(f"port {number}", fact, advice)


def _prepared(port: int | None, database: str | None) -> tuple[ClusterState, Credentials]:
    """State and secrets: those of last time where there are any, changed as asked."""
    load_wanted()
    last = ClusterState.load() or _first_state(port)
    secrets = Credentials.load() or Credentials.make()
    state, credentials = _with_database(last, secrets, database)
    if port is not None:
        state = state.model_copy(update={"ports": {**state.ports, "api": port}})
    if (state, credentials) != (last, secrets) and running():
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
        kind, url = Database.POSTGRES, SecretStr(database_url(database))
    applied = state.applied if url == credentials.database_url else ""
    state = state.model_copy(update={"database": kind, "applied": applied})
    return state, credentials.model_copy(update={"database_url": url})


def _first_state(port: int | None) -> ClusterState:
    names = ("api", "worker", "s3", *STORAGE)
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    if port is None and is_free(_API_PORT):
        ports["api"] = _API_PORT
    return ClusterState(database=Database.SQLITE, ports=ports)
