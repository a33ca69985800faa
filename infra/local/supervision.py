"""The configuration of the local cluster's processes; `supervisord.conf` lists them.

`python -m infra.local.supervision NAME ARGUMENT...` becomes Python with these arguments, and ends
with supervisord. Only it reads the secrets, and each process gets those that it needs in its
environment: supervisord's file and environment and all arguments are free of secrets.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from flows.connection import (
    ACCESS_KEY,
    STORE,
    ClusterState,
    ask_manager,
    cluster_folder,
    manager_socket,
    running,
    write_private,
)
from menagerie.process import end_with
from zoo.errors import UsageError

POOL = "linux-cpu"
# The ports of each process, by their names in `ClusterState`.
PORTS = {"s3": "s3", "database": "database", "server": "api", "worker": "worker"}
# Set for another server or store, these would mislead our processes.
_FOREIGN = ("PREFECT_", "AWS_", "MENAGERIE_STORE")


def secrets_of(name: str, state: ClusterState) -> dict[str, str]:
    """Return a process's variables that hold secrets, and related ones."""
    if name == "s3":
        keys = {ACCESS_KEY: state.s3_secret.get_secret_value()}
        return {"MENAGERIE_SWIFT_KEYS": json.dumps(keys)}
    if name == "database":
        return {"MENAGERIE_DATABASE_SECRET": state.database_secret.get_secret_value()}
    if name == "worker":
        return state.environment()
    return {
        "PREFECT_SERVER_API_AUTH_STRING": state.api_auth.get_secret_value(),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": state.database_url("postgresql+asyncpg"),
    }


def child_environment(values: dict[str, str] | None = None) -> dict[str, str]:
    """Return our environment without variables meant for other servers, plus `values`.

    Prefect then keeps its files under our folder and sends no telemetry.
    """
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)},
        "PREFECT_HOME": str(cluster_folder() / "prefect"),
        "PREFECT_SERVER_UI_STATIC_DIRECTORY": str(cluster_folder() / "prefect" / "ui"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_CLI_COLORS": "false",
        **(values or {}),
    }


def main(name: str, *arguments: str) -> None:
    """Become a process of the cluster."""
    end_with(os.getppid())
    if (state := ClusterState.load()) is None:
        raise UsageError(name, "is started by `zoo cluster up`")
    environment = {**os.environ, **secrets_of(name, state)}
    os.execve(sys.executable, [sys.executable, *arguments], environment)  # noqa: S606 - ours


def configuration(state: ClusterState) -> str:
    """Return supervisord's file for a cluster with these ports, read in the cluster's folder."""
    text, _, every = Path(__file__).with_name("supervisord.conf").read_text().partition("---\n")
    socket = manager_socket()
    values = {
        **{name: str(port) for name, port in state.ports.items()},
        "socket": socket.name if socket.parent == cluster_folder() else str(socket),
        "begin": f"{Path(sys.executable).name} -m infra.local.supervision",
        "store": STORE,
        "pool": POOL,
    }
    return text.format(every=every, **values)


def start_manager(text: str) -> None:
    """Start supervisord with this file unless its processes run; raise UsageError if it fails."""
    with suppress(OSError):
        manager = psutil.Process(ask_manager("getPID"))
        if running():
            return
        ask_manager("shutdown")  # its file may name other ports
        manager.wait()
    folder = cluster_folder()
    for name in ("logs", "tmp"):
        (folder / name).mkdir(mode=0o700, exist_ok=True)
    write_private(folder / "manager.conf", text)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    env = child_environment({"PATH": path, "TMPDIR": str(folder / "tmp")})
    # It listens before it daemonises, so that it can be asked at once.
    command = [sys.executable, "-m", "supervisor.supervisord", "-c", "manager.conf"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=env)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines() or ["it said nothing"]
        fact = next((line for line in said if line.startswith("Error:")), said[-1])
        raise UsageError("supervisord", fact, "Run `pip install 'menagerie-zoo[cluster]'`")


if __name__ == "__main__":
    main(*sys.argv[1:])
