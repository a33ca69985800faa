"""The processes of the local cluster in one table, and who carries them: supervisord.

`python -m infra.local.processes NAME` becomes the process of that name. Only it reads the secrets,
and each process gets those that it needs: neither supervisord's file nor its environment holds one.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shlex
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from flows.connection import (
    ACCESS_KEY,
    BUCKET,
    READER_KEY,
    WORKER_KEY,
    ClusterState,
    Credentials,
    Database,
    ask_manager,
    cluster_folder,
    local_connection,
    manager_socket,
    write_private,
)
from infra.local import s3_server
from infra.local.s3_rights import Key, Rights
from zoo.errors import MenagerieError, UsageError
from zoo.processes import OWN_STORE, ROLE, WORKER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

MARK = "MENAGERIE_CLUSTER"  # in the environment of all that the cluster runs, with its folder
POOL = "linux-cpu"
_LOOKS, _LOOK_SECONDS = 3, 0.01  # at a process whose program is just being replaced
_PREFECT = [sys.executable, "-m", "prefect", "--no-prompt"]
# Set for another server or store, they would lead our processes astray; and one holds a secret.
_FOREIGN = ("PREFECT_", "AWS_", "MENAGERIE_STORE", "MENAGERIE_POSTGRES")

# SQLite has one writer at a time: wait for it, and write seldom. By itself the scheduler writes
# a hundred runs of every schedule at once, and the recorder one event a transaction. An event
# that finds the database locked is handled again, with what it caused already done; a request that
# does is refused, and its client comes back after seconds.
SPARING_SETTINGS = {
    "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
    "PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT": "60",
    "PREFECT_SERVER_SERVICES_SCHEDULER_MAX_RUNS": "10",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
}


@dataclass(frozen=True)
class Process:
    """How a process is started and ended.

    Attributes:
        port: the name of the one that it listens on, in `ClusterState.ports`.
        command: without secrets: everybody on the host can list it.
        environment: what it needs beside `child_environment`, secrets included.
        seconds: that it has to end by itself, once it is asked to.
    """

    port: str
    command: Callable[[ClusterState], list[str]]
    environment: Callable[[ClusterState, Credentials], Mapping[str, str]]
    seconds: int = 5


def quiet_environment() -> dict[str, str]:
    """For every process that imports Prefect: its files under our folder, nothing sent home."""
    return {
        "PREFECT_HOME": str(cluster_folder() / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_CLI_COLORS": "false",
    }


def server_environment(state: ClusterState, credentials: Credentials) -> dict[str, str]:
    """Authentication and protection against forged requests on, loopback and our own pages only."""
    port, database = str(state.ports["api"]), {}
    if state.database is Database.POSTGRES and credentials.database_url is not None:
        url = credentials.database_url.get_secret_value()
        database["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = url
    return {
        **quiet_environment(),
        "PREFECT_SERVER_API_HOST": "127.0.0.1",
        "PREFECT_SERVER_API_PORT": port,
        "PREFECT_SERVER_API_AUTH_STRING": credentials.api_auth.get_secret_value(),
        "PREFECT_SERVER_API_CSRF_PROTECTION_ENABLED": "true",
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"{state.ui_url},http://localhost:{port}",
        **SPARING_SETTINGS,
        "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PREFECT_SERVER_UI_STATIC_DIRECTORY": str(cluster_folder() / "prefect" / "ui"),
        **database,
    }


def rights(credentials: Credentials) -> Rights:
    """The keys of the store: the owner's, and two to give away with less than all rights."""
    return Rights(
        BUCKET,
        (
            Key(ACCESS_KEY, credentials.s3_secret.get_secret_value()),
            Key(WORKER_KEY, credentials.s3_worker_secret.get_secret_value(), "worker-policy"),
            Key(READER_KEY, credentials.s3_reader_secret.get_secret_value(), "reader-policy"),
        ),
    )


def worker_command(pool: str = POOL) -> list[str]:
    """Start a worker that runs every flow in a process of its own, and tells of its health."""
    start = ["worker", "start", "--type", "process", "--with-healthcheck", "--pool", pool]
    return [*_PREFECT, *start, "--name", f"{platform.node() or 'host'} {pool}"]


def worker_environment(
    state: ClusterState, credentials: Credentials, port: int | None = None
) -> dict[str, str]:
    """What a worker and the flows in it need; it tells of its health at `/health` of `port`."""
    temporary = cluster_folder() / "tmp"
    temporary.mkdir(mode=0o700, parents=True, exist_ok=True)
    return {
        **quiet_environment(),
        **local_connection(state, credentials).environment(),
        ROLE: WORKER,
        OWN_STORE: state.store,
        "PREFECT_WORKER_QUERY_SECONDS": "2",  # on loopback it costs little
        "PREFECT_WORKER_WEBSERVER_HOST": "127.0.0.1",
        "PREFECT_WORKER_WEBSERVER_PORT": str(port or state.ports["worker"]),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "TMPDIR": str(temporary),
    }


PROCESSES = {
    "s3": Process(
        "s3",
        lambda state: s3_server.command(cluster_folder() / "s3", {"s3": str(state.ports["s3"])}),
        lambda _, secrets: s3_server.environment(rights(secrets)),
    ),
    "server": Process(
        "api",
        lambda _: [*_PREFECT, "server", "start"],
        server_environment,
        seconds=15,  # to close its database
    ),
    "worker": Process("worker", lambda _: worker_command(), worker_environment, seconds=20),
}


def main(name: str) -> None:
    """Become a process of the cluster."""
    state, credentials = ClusterState.load(), Credentials.load()
    if state is None or credentials is None:
        raise UsageError(name, "is started by `zoo up`")
    process = PROCESSES[name]
    command = process.command(state)
    os.execve(command[0], command, {**os.environ, **process.environment(state, credentials)})  # noqa: S606 - ours


def start_manager() -> None:
    """Start supervisord with the table of processes, unless it runs; none of them runs yet.

    Raises:
        UsageError: it is not installed, or does not start.
    """
    with suppress(OSError):
        ask_manager("getPID")
        return
    folder, here = cluster_folder(), Path(__file__).parent
    (folder / "logs").mkdir(mode=0o700, exist_ok=True)
    text = (here / "supervisord.conf").read_text().format(socket=manager_socket(), folder=folder)
    program = (here / "supervisord-program.conf").read_text()
    for name, process in PROCESSES.items():
        become = shlex.join([sys.executable, "-m", "infra.local.processes", name])
        text += program.format(name=name, command=become, seconds=process.seconds, folder=folder)
    write_private(folder / "manager.conf", text.replace("%", "%%"))
    command = [sys.executable, "-m", "supervisor.supervisord", "-c", str(folder / "manager.conf")]
    # It listens before it leaves this process, so that it can be asked at once.
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=child_environment()
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines() or ["it said nothing"]
        raise UsageError("supervisord", said[-1], "Run `pip install 'menagerie-zoo[cluster]'`")


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


def child_environment(values: Mapping[str, str] | None = None) -> dict[str, str]:
    """`values` and what of ours is not meant for other servers, with the cluster's mark."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
    return {**kept, **(values or {}), MARK: str(cluster_folder())}


def marked() -> list[psutil.Process]:
    """All processes of the cluster, also those that its processes started."""
    found, unsure = _judged(psutil.process_iter())
    for _ in range(_LOOKS):
        if unsure:
            time.sleep(_LOOK_SECONDS)
            more, unsure = _judged(unsure)
            found += more
    return found


def _judged(
    processes: Iterable[psutil.Process],
) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """Those of the cluster; and those without an environment, as while exec replaces a program."""
    ours, unsure = [], []
    for process in processes:
        with suppress(psutil.Error, OSError):  # gone, or another user's
            environment = process.environ()
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            if not environment:
                unsure.append(process)
            elif environment.get(MARK) == str(cluster_folder()):
                ours.append(process)
    return ours, unsure


def log_path(name: str) -> Path:
    """Where a process writes."""
    return cluster_folder() / "logs" / f"{name}.log"


def last_line(log: Path) -> str:
    """The last thing a process said."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return ([line.strip() for line in text.splitlines() if line.strip()] or ["it said nothing"])[-1]


if __name__ == "__main__":
    main(sys.argv[1])
