"""How Prefect's server and its workers are started, with authentication on and analytics off."""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cluster.state import Database, cluster_folder
from zoo.errors import UsageError

if TYPE_CHECKING:
    from flows.cluster.connection import Connection
    from flows.cluster.credentials import Credentials
    from flows.cluster.state import ClusterState

__all__ = [
    "POOL",
    "SPARING_SETTINGS",
    "database_url",
    "quiet_environment",
    "server_command",
    "server_environment",
    "worker_command",
    "worker_environment",
]

POOL = "linux-cpu"
_POSTGRES = re.compile(r"^postgres(?:ql)?(?:\+asyncpg)?://(?=[^/]+/[^/]+$)")
_LOOK_SECONDS = "2"  # how often a worker asks for work: on loopback it costs little

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


def database_url(given: str) -> str:
    """The address of a PostgreSQL database as Prefect's server wants it.

    Raises:
        UsageError: if it is none; the message does not repeat it, since it may hold a password.
    """
    if not _POSTGRES.match(given):
        form = "Give postgresql://user:password@host:5432/database"
        raise UsageError("--postgres", "is not the address of a PostgreSQL database", form)
    return _POSTGRES.sub("postgresql+asyncpg://", given)


def quiet_environment() -> dict[str, str]:
    """For every process that imports Prefect: its files under our folder, nothing sent home."""
    return {
        "PREFECT_HOME": str(cluster_folder() / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_CLI_COLORS": "false",
    }


def server_command(state: ClusterState) -> list[str]:
    """Start the API, the UI and the background services in one process."""
    port = str(state.ports["api"])
    prefect = [sys.executable, "-m", "prefect", "--no-prompt"]
    return [*prefect, "server", "start", "--host", "127.0.0.1", "--port", port]


def server_environment(state: ClusterState, credentials: Credentials) -> dict[str, str]:
    """What the server needs, secrets included."""
    port = state.ports["api"]
    folder = cluster_folder() / "prefect"
    database = {}
    if state.database is Database.POSTGRES and credentials.database_url is not None:
        url = credentials.database_url.get_secret_value()
        database["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = url
    return quiet_environment() | {
        "PREFECT_SERVER_API_HOST": "127.0.0.1",
        "PREFECT_SERVER_API_PORT": str(port),
        "PREFECT_SERVER_API_AUTH_STRING": credentials.api_auth.get_secret_value(),
        "PREFECT_SERVER_API_CSRF_PROTECTION_ENABLED": "true",
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"{state.ui_url},http://localhost:{port}",
        **SPARING_SETTINGS,
        "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PREFECT_SERVER_UI_STATIC_DIRECTORY": str(folder / "ui"),
        **database,
    }


def worker_command(pool: str = POOL) -> list[str]:
    """Start a worker that runs every flow in a process of its own, and tells of its health."""
    prefect = [sys.executable, "-m", "prefect", "--no-prompt"]
    start = ["worker", "start", "--type", "process", "--with-healthcheck", "--pool", pool]
    return [*prefect, *start, "--name", f"{platform.node() or 'host'} {pool}"]


def worker_environment(connection: Connection, health_port: int) -> dict[str, str]:
    """What a worker and the flows in it need, secrets included.

    Args:
        connection: the server and the store.
        health_port: where the worker tells of its health, at `/health`.
    """
    temporary = cluster_folder() / "tmp"
    temporary.mkdir(mode=0o700, parents=True, exist_ok=True)
    return (
        quiet_environment()
        | connection.environment()
        | {
            "PREFECT_WORKER_QUERY_SECONDS": _LOOK_SECONDS,
            "PREFECT_WORKER_WEBSERVER_HOST": "127.0.0.1",
            "PREFECT_WORKER_WEBSERVER_PORT": str(health_port),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "TMPDIR": str(temporary),
        }
    )
