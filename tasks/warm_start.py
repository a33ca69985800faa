"""Starts the process of a model; on Linux with its libraries loaded.

On macOS each process loads its own: the system's libraries do not bear a fork (Python's
documentation of multiprocessing, "contexts and start methods").
"""

from __future__ import annotations

import sys
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

from menagerie.paths import home
from tasks.child import spawn
from tasks.forked import ForkServer

if TYPE_CHECKING:
    from pathlib import Path

    from tasks.child import Child

_FORKS = sys.platform == "linux"


class Servers:
    """Starts a server when it is first needed, and another one where that serves no more.

    Args:
        command: of a server.
    """

    def __init__(self, *command: str) -> None:
        self._command = command
        self._lock = Lock()
        self._server: ForkServer | None = None
        self._retired: list[ForkServer] = []
        self._one_died = False

    def fork(self, kind: str, log: Path) -> Child:
        """See `ForkServer.fork`."""
        return self._current().fork(kind, log)

    def load_ahead(self, kind: str) -> None:
        """See `ForkServer.load`; not where a server died, perhaps of what it loaded."""
        server = self._current()
        if not self._one_died:
            server.load(kind)

    def _current(self) -> ForkServer:
        with self._lock:
            self._retired = [each for each in self._retired if each.runs()]
            if self._server is not None and not self._server.runs():
                self._one_died = True
                self._retire(self._server)
            elif self._server is not None and not self._server.fits():
                self._retire(self._server)
            if self._server is None:
                log = home() / "logs" / "fork_server.log"
                self._server = ForkServer(self._command, log)
            return self._server

    def _retire(self, server: ForkServer) -> None:
        server.retire()
        self._retired.append(server)
        self._server = None


_SERVERS = Servers(sys.executable, "-m", "tasks.fork_server")


def start(kind: str, log: Path) -> Child:
    """A process for a model of this kind of source; it starts while the caller does other things.

    Args:
        kind: of the source.
        log: the file that receives what the process has to say.
    """
    if _FORKS:
        return _SERVERS.fork(kind, log)
    return spawn((sys.executable, "-m", "tasks.serve_model", kind), log)


def load_ahead(kind: str) -> None:
    """Load the libraries for models of this kind of source now, while others are at work."""
    if _FORKS:
        with suppress(OSError):  # whoever cannot do without a server will say so
            _SERVERS.load_ahead(kind)
