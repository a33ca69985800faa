"""Starting, recognising and ending processes that outlive the command that started them."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cluster.state import ProcessRecord, cluster_folder
from zoo.processes import birth

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "MARK",
    "alive",
    "last_line",
    "log_path",
    "marked",
    "spawn",
    "stop",
]

MARK = (
    "MENAGERIE_CLUSTER"  # in the environment of every process of a cluster, with the cluster's id
)
_LOG_BYTES = 10 * 2**20  # a longer log is put aside when its process is started anew
_POLL_SECONDS = 0.05
_KILL_SECONDS = 10.0
_LINUX = platform.system() == "Linux"
_PROC = Path("/proc")
# Set for another server or store, they would lead our processes astray; and one holds a secret.
_FOREIGN = ("PREFECT_", "MENAGERIE_S3_", "MENAGERIE_STORE", "MENAGERIE_POSTGRES")


def spawn(name: str, command: Sequence[str], environment: Mapping[str, str]) -> ProcessRecord:
    """Start a process in a session of its own, with its output in `log_path(name)`.

    Args:
        name: of the process.
        command: without secrets: everybody on the host can list it.
        environment: see `child_environment`.
    """
    log = log_path(name)
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > _LOG_BYTES:
        log.replace(log.with_suffix(".old.log"))
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd=cluster_folder(),
            env=child_environment(environment),
        )
    child.returncode = 0  # it outlives us on purpose: no warning when this object goes
    born = birth(child.pid)
    return ProcessRecord(pid=child.pid, started=born or "already ended")


def child_environment(values: Mapping[str, str]) -> dict[str, str]:
    """`values` and what of ours is not meant for other servers, with the cluster's mark."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
    return {**kept, **values, MARK: str(cluster_folder())}


def alive(record: ProcessRecord | None) -> bool:
    """Whether the process still runs, and its id was not given to another."""
    if record is None:
        return False
    _reap(record.pid)
    return birth(record.pid) == record.started


def stop(record: ProcessRecord, seconds: float) -> None:
    """Ask a process to end; kill it and its session when it does not within so many seconds."""
    if not alive(record):
        return
    os.kill(record.pid, signal.SIGTERM)
    if not _ended(record, seconds):
        os.killpg(record.pid, signal.SIGKILL)
        _ended(record, _KILL_SECONDS)


def marked() -> list[int]:
    """Ids of all processes of the cluster, also those that its processes started."""
    mark = f"{MARK}={cluster_folder()}"
    if _LINUX:
        found = [int(each.name) for each in _PROC.iterdir() if each.name.isdigit()]
        return [pid for pid in found if mark in _environment(pid) and birth(pid) is not None]
    shown = subprocess.run(  # -E shows environments, of our own processes
        ["/bin/ps", "-xwwE", "-o", "pid=,command="], capture_output=True, text=True, check=False
    ).stdout
    return [int(line.split(maxsplit=1)[0]) for line in shown.splitlines() if mark in line.split()]


def log_path(name: str) -> Path:
    """Where a process writes."""
    return cluster_folder() / "logs" / f"{name}.log"


def last_line(log: Path) -> str:
    """The last thing a process said."""
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except FileNotFoundError:
        lines = []
    return lines[-1].strip() if lines else "it said nothing"


def _ended(record: ProcessRecord, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while alive(record):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _environment(pid: int) -> list[str]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:  # gone, or another user's
        return []


def _reap(pid: int) -> None:
    """Take the exit code of a process that this very command started."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
