"""Processes for models: forked off a server that has the libraries loaded, or started afresh.

On macOS, whose system libraries do not bear a fork (Python's documentation of multiprocessing,
"contexts and start methods"), every process loads its libraries. `tasks.serve_model` is what runs
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

_PR_SET_CHILD_SUBREAPER = 36  # of prctl(2): orphans of our children become ours
_FORKS = sys.platform == "linux"
_PATIENCE = 30.0  # seconds in which a server forks what it was asked for, unless it hangs
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}  # a fork keeps only the thread that calls it


class _Spawned(subprocess.Popen[str]):
    def kill(self) -> None:
        """End the whole group."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.killpg(self.pid, signal.SIGKILL)


def spawn(command: Sequence[str], log: Path) -> Child:
    """Start a process in a group of its own, whose errors go to a log file."""
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
    """A child that a server has forked, with the parts of a `subprocess.Popen` that are needed.

    A thread follows it from its fork to its end, so any thread may ask for it or end it. `pid` is
    None until it is forked, and for ever where the server died before.
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
        """Id of the process and of its group."""
        return self._pid.result() if self._pid.done() else None

    def poll(self) -> int | None:
        """Return the exit code, as `subprocess.Popen.poll` does."""
        return self._code.result() if self._code.done() else None

    def wait(self) -> int:
        """Wait until it ends, and return how."""
        return self._code.result()

    def kill(self) -> None:
        """End it and all that it started; where it was not forked yet, it ends as it begins."""
        if not self._pid.done():
            with suppress(OSError):
                self.stdin.close()
            try:
                self._pid.result(_PATIENCE)
            except TimeoutError:
                self._server.kill()
        pid = self._pid.result()
        if pid is not None and not self._code.done():
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.killpg(pid, signal.SIGKILL)

    def _follow(self, report: int) -> None:
        """Read the pid from a pipe, whose end says that it was never forked, and wait for it."""
        with os.fdopen(report, "rb") as pipe:
            content = pipe.read(PID.size)
        pid = PID.unpack(content)[0] if content else None
        self._pid.set_result(pid)
        if pid is None:
            self._code.set_result(-signal.SIGKILL)
            return
        self._code.set_result(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        with suppress(ChildProcessError):  # until none is left of its group: compilers
            while True:
                os.waitpid(-pid, 0)


Child: TypeAlias = _Spawned | ForkedProcess


class ForkServer:
    """A process that loads libraries and is forked for each model.

    It forks twice, so that a model's process becomes a child of this one: the server's end is no
    end of the model's, and the model's is seen as that of any child. It is started by `command`,
    `python -m tasks.serve_model --fork` or one of the same protocol; its output goes to `log`.
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
        """Return whether it has not ended."""
        return self._process.poll() is None

    def fits(self) -> bool:
        """Return whether what it forks has the folder and environment of this process now."""
        return self._surroundings == (Path.cwd(), lent_environment())

    def load(self, kind: str) -> None:
        """Load the library of a kind of source, for all that are forked later; OSError: it died."""
        self._control.send(kind.encode())

    def fork(self, kind: str, log: Path) -> ForkedProcess:
        """Fork a process for a model of this kind of source, once its library is loaded.

        Where the server died, the process has died as well.
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
        """Let it end when it has done what it was asked; a thread waits for that."""
        self._control.close()
        Thread(target=self._process.wait, daemon=True).start()

    def kill(self) -> None:
        """End it at once; what was forked goes on, what was not never will be."""
        self._control.close()
        self._process.kill()
        self._process.wait()


class Servers:
    """Begins processes for models, by a fork server that is replaced when it serves no more."""

    def __init__(self, *command: str) -> None:
        self._command = command
        self._lock = Lock()
        self._server: ForkServer | None = None
        self._one_died = False

    def begin(self, kind: str, log: Path) -> Child:
        """Begin a process for a model of this kind of source; its output goes to the file `log`.

        It starts while the caller does other work.
        """
        if _FORKS:
            return self._current().fork(kind, log)
        return spawn((sys.executable, "-m", "tasks.serve_model", kind), log)

    def load_ahead(self, kind: str) -> None:
        """Load the libraries for models of this kind of source now, while others are at work.

        Not where a server died, perhaps of what it loaded.
        """
        if _FORKS:
            with suppress(OSError):  # what cannot do without a server will say so
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
