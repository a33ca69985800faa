"""Bringing the local cluster up: whatever lacks is made or started, the rest is left alone."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from pydantic import SecretStr

from flows.connection import (
    ClusterState,
    Credentials,
    Database,
    ask_manager,
    local_connection,
    running,
    state_path,
)
from infra.local.ports import free_ports, is_free
from infra.local.processes import (
    POOL,
    PROCESSES,
    child_environment,
    last_line,
    locked,
    log_path,
    quiet_environment,
    start_manager,
)
from infra.local.server import ApiSilent, put_back
from infra.local.status import PARTS, bucket, look_at
from infra.wanted import load_wanted
from zoo.errors import Health, MenagerieError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from flows.connection import Connection

UNCHANGED = "unchanged"

_START_SECONDS = 180.0  # a fresh database took 14 s on two idle cores, and much more on busy ones
_POLL_SECONDS = 0.1
_API_PORT = 4200  # Prefect's own, where it is free
_POSTGRES = re.compile(r"^postgres(?:ql)?(?:\+asyncpg)?://(?=[^/]+/[^/]+$)")


class PartChange(NamedTuple):
    """What was done about one part of the cluster: started, applied, or it is unchanged."""

    name: str
    change: str
    detail: str


def up(
    *,
    port: int | None = None,
    database: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[ClusterState, list[PartChange]]:
    """Bring the cluster up.

    Args:
        port: of Prefect's API and UI; None: the one of last time, at first 4200 or any free one.
        database: "sqlite" or the address of a PostgreSQL database, for Prefect; None: as last time,
            at first SQLite.
        tell: told what is being waited for.

    Returns:
        Addresses, and what was changed, part by part.

    Raises:
        MenagerieError: if something does not start; what runs by then goes on, and a second call
            continues from there.
    """
    with locked():
        if importlib.util.find_spec("swift") is None:
            advice = "On Linux: run `pip install 'menagerie-zoo[cluster]'`"
            raise UsageError("OpenStack Swift", "is not installed", advice)
        state, credentials = _prepared(port, database)
        known = running()
        _require_ports(state, known)
        state = state.model_copy(update={"up": True})
        state.save()
        start_manager()
        connection = local_connection(state, credentials)
        return state, [
            _start(name, state, connection, tell)
            if name in PROCESSES
            else tell_of_deployments(state, connection, tell)
            for name in PARTS
        ]


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
    name: str, state: ClusterState, connection: Connection, tell: Callable[[str], None]
) -> PartChange:
    """Start it where it does not run, and wait until it is well."""
    lacking = name not in running()
    if lacking and name == "worker":
        with suppress(ApiSilent):  # the automations will see to them too, only later
            put_back(connection, POOL)
    if lacking:
        ask_manager("startProcess", name, False)
    tell(f"waiting for {name}")
    log = log_path(name)
    deadline = time.monotonic() + _START_SECONDS
    while True:
        if name == "s3":
            with suppress(MenagerieError):  # it does not answer yet
                bucket(connection).ensure_bucket()
        check = look_at(name, state, connection)
        if check.health is Health.OK:
            return PartChange(name, "started" if lacking else UNCHANGED, check.detail)
        if name not in running():
            raise MenagerieError(name, check.detail, f"The whole story is in {log}")
        if time.monotonic() > deadline:
            fact = f"is not well after {_START_SECONDS:.0f} s: {check.detail}"
            raise MenagerieError(name, fact, f"See {log}; `zoo down` and `zoo up` start it anew")
        time.sleep(_POLL_SECONDS)


def tell_of_deployments(
    state: ClusterState, connection: Connection, tell: Callable[[str], None]
) -> PartChange:
    """Tell the server of what it does not know, or of what has changed since it was told.

    Raises:
        MenagerieError: it was not told, or not in time.
    """
    name, digest, log = "deployments", load_wanted().digest, log_path("apply")
    check = look_at(name, state, connection)
    if state.applied == digest and check.health is Health.OK:
        return PartChange(name, UNCHANGED, check.detail)
    tell("telling the server of work pools, deployments and automations")
    command = [sys.executable, "-m", "infra.apply"]
    environment = child_environment(quiet_environment() | connection.prefect_environment())
    try:
        with log.open("wb") as output:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=_START_SECONDS,
                check=True,
                env=environment,
            )
    except subprocess.SubprocessError as error:
        late = isinstance(error, subprocess.TimeoutExpired)
        fact = f"not told within {_START_SECONDS:.0f} s" if late else last_line(log)
        raise MenagerieError(name, fact, f"The whole story is in {log}") from error
    state.model_copy(update={"applied": digest}).save()
    return PartChange(name, "applied", look_at(name, state, connection).detail)


def _require_ports(state: ClusterState, known: dict[str, int]) -> None:
    """Before anything is started.

    Raises:
        UsageError: two of ours are to listen on one port.
        MenagerieError: another program listens where one of ours is to.
    """
    anew = f"remove {state_path()} to have ports chosen anew"
    for name, process in PROCESSES.items():
        number = state.ports[process.port]
        advice = "give another --port" if process.port == "api" else anew
        if others := [p for p, n in state.ports.items() if n == number and p != process.port]:
            fact = f"is to be that of {name} and of {', '.join(others)}"
            raise UsageError(f"port {number}", fact, f"Give another --port, or {anew}")
        if name not in known and not is_free(number):
            fact = f"is taken by another program, and {name} needs it"
            raise MenagerieError(f"port {number}", fact, f"End it, or {advice}")


def _prepared(port: int | None, database: str | None) -> tuple[ClusterState, Credentials]:
    """State and secrets: those of last time where there are any, changed as asked."""
    load_wanted()
    last = ClusterState.load() or _first_state(port)
    secrets = Credentials.load() or Credentials.make()
    state = last if port is None else last.model_copy(update={"ports": {**last.ports, "api": port}})
    credentials = secrets
    if database is not None:
        kind = Database.SQLITE if database == Database.SQLITE else Database.POSTGRES
        url = None if kind is Database.SQLITE else SecretStr(database_url(database))
        applied = state.applied if url == secrets.database_url else ""
        state = state.model_copy(update={"database": kind, "applied": applied})
        credentials = secrets.model_copy(update={"database_url": url})
    elif state.database is Database.POSTGRES and secrets.database_url is None:
        advice = "Set MENAGERIE_POSTGRES again, or give --sqlite"
        raise UsageError("the PostgreSQL database", "its address went with the secrets", advice)
    if (state, credentials) != (last, secrets) and running():
        fact = "the cluster runs with another port or database"
        raise UsageError("zoo up", fact, "Run `zoo down` first")
    credentials.save()
    state.save()
    return state, credentials


def _first_state(port: int | None) -> ClusterState:
    names = [process.port for process in PROCESSES.values()]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    if port is None and is_free(_API_PORT):
        ports["api"] = _API_PORT
    return ClusterState(database=Database.SQLITE, ports=ports)
