"""Starts the process of a model; on Linux with its libraries loaded.

On macOS each process loads its own: the system's libraries do not bear a fork (Python's
documentation of multiprocessing, "contexts and start methods").
"""

from __future__ import annotations

import sys
from threading import Lock
from typing import TYPE_CHECKING

from menagerie.home import home
from tasks.child import spawn
from tasks.forked import ForkServer

if TYPE_CHECKING:
    from pathlib import Path

    from tasks.child import Child

__all__ = ["load_ahead", "start"]

_FORKS = sys.platform == "linux"


def start(kind: str, log: Path) -> Child:
    """A process for a model of this kind of source; it starts while the caller does other things.

    Args:
        kind: of the source.
        log: the file that receives what the process has to say.
    """
    if _FORKS:
        return _SERVERS.current().fork(kind, log)
    return spawn((sys.executable, "-m", "tasks.serve_model", kind), log)


def load_ahead(kind: str) -> None:
    """Load the libraries for models of this kind of source now, while others are at work."""
    if _FORKS:
        _SERVERS.current().load(kind)


class _Servers:
    """Starts a server when it is first needed, and another one where that serves no more."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._server: ForkServer | None = None

    def current(self) -> ForkServer:
        with self._lock:
            if self._server is not None and not self._server.serves():
                self._server.kill()
                self._server = None
            if self._server is None:
                command = (sys.executable, "-m", "tasks.fork_server")
                self._server = ForkServer(command, home() / "logs" / "fork_server.log")
            return self._server


_SERVERS = _Servers()
