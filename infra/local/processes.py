"""The processes of the local cluster in one table, which supervisord carries.

`python -m infra.local.processes NAME` becomes the process of that name, and ends with supervisord.
Only it reads the secrets, and each process gets those that it needs: neither supervisord's file nor
its environment holds one.
"""

from __future__ import annotations

import json
import os
import platform
import random
import shlex
import socket
import subprocess
import sys
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from flows.connection import (
    ACCESS_KEY,
    ClusterState,
    Credentials,
    Database,
    ask_manager,
    cluster_folder,
    local_connection,
    manager_socket,
    write_private,
)
from menagerie.process import end_with
from zoo.errors import MenagerieError, UsageError
from zoo.processes import OWN_STORE, ROLE, WORKER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

POOL = "linux-cpu"
# Set for another server or store, they would lead our processes astray; and one holds a secret.
_FOREIGN = ("PREFECT_", "AWS_", "MENAGERIE_STORE", "MENAGERIE_POSTGRES")
# Below those that Linux lends to outgoing connections, which may take one before our server does.
_PORTS = range(20_000, 32_000)
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


def worker_environment(
    state: ClusterState, credentials: Credentials, port: int | None = None
) -> dict[str, str]:
    """What a worker and the flows in it need; it reports its health at `/health` of `port`."""
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


def quiet_environment() -> dict[str, str]:
    """For every process that imports Prefect: its files under our folder, nothing sent home."""
    return {
        "PREFECT_HOME": str(cluster_folder() / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_CLI_COLORS": "false",
    }


def child_environment(values: Mapping[str, str] | None = None) -> dict[str, str]:
    """`values`, and what of our own environment is not meant for other servers."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
    return {**kept, **(values or {})}


def worker_command(pool: str = POOL) -> list[str]:
    """Start a worker that runs every flow in a process of its own, and reports its health."""
    start = ["worker", "start", "--type", "process", "--with-healthcheck", "--pool", pool]
    return _prefect(*start, "--name", f"{platform.node() or 'host'} {pool}")


def _prefect(*words: str) -> list[str]:
    return [sys.executable, "-m", "prefect", "--no-prompt", *words]


def _serve_s3(state: ClusterState, credentials: Credentials) -> None:
    program = [sys.executable, "-W", "ignore", "-m", "infra.local.s3_server"]
    keys = json.dumps({ACCESS_KEY: credentials.s3_secret.get_secret_value()})
    _become(
        [*program, str(cluster_folder() / "s3"), str(state.ports["s3"])],
        {"EVENTLET_NO_GREENDNS": "yes", "TZ": "UTC", "MENAGERIE_SWIFT_KEYS": keys},
    )


def _serve_prefect(state: ClusterState, credentials: Credentials) -> None:
    _become(_prefect("server", "start"), server_environment(state, credentials))


def _work(state: ClusterState, credentials: Credentials) -> None:
    """Put back what the last worker was at when it ended, and be the next one."""
    from infra.local.api import put_back

    with suppress(MenagerieError):  # the automations will see to them too, only later
        put_back(local_connection(state, credentials), POOL)
    _become(worker_command(), worker_environment(state, credentials))


def _become(command: list[str], environment: Mapping[str, str]) -> None:
    os.execve(command[0], command, {**os.environ, **environment})  # noqa: S606 - ours


class Process(NamedTuple):
    """The name of its port in `ClusterState.ports`, what begins it, and the seconds it has to end.

    Its arguments hold no secret: everybody on the host can list them.
    """

    port: str
    begin: Callable[[ClusterState, Credentials], None]
    seconds: int


PROCESSES = {
    "s3": Process("s3", _serve_s3, 5),
    "server": Process("api", _serve_prefect, 15),  # to close its database
    "worker": Process("worker", _work, 20),
}


def main(name: str) -> None:
    """Become a process of the cluster."""
    end_with(os.getppid())
    state, credentials = ClusterState.load(), Credentials.load()
    if state is None or credentials is None:
        raise UsageError(name, "is started by `zoo cluster up`")
    PROCESSES[name].begin(state, credentials)


def start_manager() -> None:
    """Start supervisord with the table of processes, unless it runs; none of them runs yet.

    Raises:
        UsageError: it is not installed, or does not start.
    """
    with suppress(OSError):
        ask_manager("getPID")
        return
    folder = cluster_folder()
    (folder / "logs").mkdir(mode=0o700, exist_ok=True)
    head, _, program = Path(__file__).with_name("supervisord.conf").read_text().partition("---\n")
    text = head.format(socket=manager_socket(), folder=folder)
    for priority, (name, process) in enumerate(PROCESSES.items()):
        become = shlex.join([sys.executable, "-m", "infra.local.processes", name])
        told = {"name": name, "command": become, "priority": priority, "seconds": process.seconds}
        text += program.format(folder=folder, **told)
    write_private(folder / "manager.conf", text.replace("%", "%%"))
    # It listens before it leaves this process, so that it can be asked at once.
    command = [sys.executable, "-m", "supervisor.supervisord", "-c", str(folder / "manager.conf")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=child_environment()
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines() or ["it said nothing"]
        raise UsageError("supervisord", said[-1], "Run `pip install 'menagerie-zoo[cluster]'`")


def free_ports(count: int) -> list[int]:
    """Different ports of 127.0.0.1 that nobody listens on now, chosen at random."""
    order = random.SystemRandom().sample(_PORTS, len(_PORTS))
    return list(islice(filter(is_free, order), count))


def is_free(port: int) -> bool:
    """Whether a server could listen on 127.0.0.1 there now."""
    with socket.socket() as each:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do it themselves
        with suppress(OSError):
            each.bind(("127.0.0.1", port))
            return True
        return False


if __name__ == "__main__":
    main(sys.argv[1])
