"""Processes for models, forked off a server that has the libraries loaded, or started afresh.

On macOS, whose system libraries do not survive a fork (Python's documentation of multiprocessing,
"contexts and start methods"), every process loads its libraries. `tasks.serve_model` runs
on the other side.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import IO, TypeAlias

from menagerie.paths import home
from tasks.job import lent_environment
from tasks.memory import expendable

PID = struct.Struct("=i")  # of a forked process, as it reports it

_PR_SET_CHILD_SUBREAPER = 36  # of prctl(2): adopt orphans of our children
_FORKS = sys.platform == "linux"
_PATIENCE = 30.0  # seconds for a server to fork a process, unless it hangs
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}  # a fork keeps only the calling thread


class _Spawned(subprocess.Popen[str]):
    def kill(self) -> None:
        """Kill the whole process group."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended already
                os.killpg(self.pid, signal.SIGKILL)


def spawn(command: Sequence[str], log: Path) -> Child:
    """Start a process in a group of its own, with its errors in a log file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        child = _Spawned(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            env=lent_environment(),
            start_new_session=True,
        )
    expendable(child.pid)
    return child


class ForkedProcess:
    """A child that a server has forked, with the required subset of `subprocess.Popen`.

    A thread follows it from its fork to its end, so any thread may poll or kill it. `pid` is None
    until it is forked, and stays None if the server died before.
    """

    def __init__(self, server: ForkServer, stdin: IO[str], stdout: IO[str], report: int) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self._server = server
        self._pid: Future[int | None] = Future()
        self._code: Future[int] = Future()
        Thread(target=self._follow, args=(report,), daemon=True).start()

    @property
    def pid(self) -> int | None:
        """The id of the process and of its group."""
        return self._pid.result() if self._pid.done() else None

    def poll(self) -> int | None:
        """Return the exit code, as `subprocess.Popen.poll` does."""
        return self._code.result() if self._code.done() else None

    def wait(self) -> int:
        """Wait until it ends, and return its exit code."""
        return self._code.result()

    def kill(self) -> None:
        """Kill it and everything that it started; if not forked yet, it ends when it begins."""
        if not self._pid.done():
            with suppress(OSError):
                self.stdin.close()
            try:
                self._pid.result(_PATIENCE)
            except TimeoutError:
                self._server.kill()
        pid = self._pid.result()
        if pid is not None and not self._code.done():
            with suppress(ProcessLookupError):  # it has ended already
                os.killpg(pid, signal.SIGKILL)

    def _follow(self, report: int) -> None:
        """Read the pid from a pipe, which stays empty if nothing was forked; wait for its end."""
        with os.fdopen(report, "rb") as pipe:
            content = pipe.read(PID.size)
        pid = PID.unpack(content)[0] if content else None
        self._pid.set_result(pid)
        if pid is None:
            self._code.set_result(-signal.SIGKILL)
            return
        self._code.set_result(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        with suppress(ChildProcessError):  # until none of its group is left, e.g. compilers
            while True:
                os.waitpid(-pid, 0)


Child: TypeAlias = _Spawned | ForkedProcess


class ForkServer:
    """A process that loads libraries and is forked for each model.

    It forks twice, so that a model's process becomes a child of this process: it outlives the
    server, and its end is seen like that of any child. `command` starts the server:
    `python -m tasks.serve_model --fork` or one with the same protocol; its output goes to `log`.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._surroundings = Path.cwd(), lent_environment()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        log.parent.mkdir(parents=True, exist_ok=True)
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        with theirs, log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=output,
                stderr=output,
                env={**lent_environment(), **_ONE_THREAD},
                start_new_session=True,
            )
        expendable(self._process.pid)

    def runs(self) -> bool:
        """Return whether the server is running."""
        return self._process.poll() is None

    def fits(self) -> bool:
        """Return whether its forks would have this process's current folder and environment."""
        return self._surroundings == (Path.cwd(), lent_environment())

    def load(self, kind: str) -> None:
        """Load the library of a kind of source for all later forks; raise OSError if it died."""
        self._control.send(kind.encode())

    def fork(self, kind: str, log: Path) -> ForkedProcess:
        """Fork a process for a model of this kind of source, after loading its library.

        If the server has died, the returned process has died as well.
        """
        requests, ours = os.pipe()
        ours_too, answers = os.pipe()
        pid, report = os.pipe()
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            theirs = [requests, answers, output.fileno(), report]
            with suppress(OSError):
                socket.send_fds(self._control, [kind.encode()], theirs)
        for fd in (requests, answers, report):
            os.close(fd)
        return ForkedProcess(self, os.fdopen(ours, "w"), os.fdopen(ours_too), pid)

    def retire(self) -> None:
        """Let the server end after its pending requests; a thread waits for that."""
        self._control.close()
        Thread(target=self._process.wait, daemon=True).start()

    def kill(self) -> None:
        """Kill the server at once; its forks continue, and pending requests are never forked."""
        self._control.close()
        self._process.kill()
        self._process.wait()


class Servers:
    """Starts processes for models by a fork server, which is replaced when it is unusable."""

    def __init__(self, *command: str) -> None:
        self._command = command
        self._lock = Lock()
        self._server: ForkServer | None = None
        self._one_died = False

    def begin(self, kind: str, log: Path) -> Child:
        """Start a process for a model of this kind of source, with its output in the file `log`.

        It starts up while the caller does other work.
        """
        if _FORKS:
            return self._current().fork(kind, log)
        return spawn((sys.executable, "-m", "tasks.serve_model", kind), log)

    def load_ahead(self, kind: str) -> None:
        """Load the libraries for models of this kind of source now, while others are at work.

        Do nothing if a server has died, since such a library may be the reason.
        """
        if _FORKS:
            with suppress(OSError):  # a caller that needs the server will report it
                server = self._current()
                if not self._one_died:
                    server.load(kind)

    def _current(self) -> ForkServer:
        with self._lock:
            last = self._server
            if last is not None and last.runs() and last.fits():
                return last
            if last is not None:
                self._one_died = self._one_died or not last.runs()
                last.retire()
            self._server = ForkServer(self._command, home() / "logs" / "fork_server.log")
            return self._server


_SERVERS = Servers(sys.executable, "-m", "tasks.serve_model", "--fork")
begin, load_ahead = _SERVERS.begin, _SERVERS.load_ahead
