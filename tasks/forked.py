"""Processes that begin with their libraries loaded, since they are forked off one that has them."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import weakref
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import IO, TYPE_CHECKING

from tasks.child import lent_environment
from tasks.limits import expendable

if TYPE_CHECKING:
    from collections.abc import Sequence

NUMBER = struct.Struct("=i")  # what is told of a process: its number, then how it ended

_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}  # a fork keeps only the thread that calls it
_PATIENCE = 30.0  # seconds in which a server comes to what it was asked, unless it hangs


class ForkServer:
    """A process that loads libraries and is forked for each model.

    Args:
        command: what to start, `python -m tasks.fork_server` or one that speaks as it does.
        log: the file to which it appends what it has to say for itself.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._surroundings = _surroundings()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        log.parent.mkdir(parents=True, exist_ok=True)
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
        """Whether it has not ended."""
        return self._process.poll() is None

    def fits(self) -> bool:
        """Whether what it forks finds itself where this process is now."""
        return self._surroundings == _surroundings()

    def load(self, kind: str) -> None:
        """Load the library of a kind of source, for all that are forked later."""
        with suppress(OSError):  # it died
            self._control.send(kind.encode())

    def fork(self, kind: str, log: Path) -> ForkedProcess:
        """A process for a model of this kind of source, forked when its library is loaded.

        Where the server died, the process has died as well.
        """
        requests, ours = os.pipe()
        ours_too, answers = os.pipe()
        told, status = os.pipe()
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            theirs = [requests, answers, output.fileno(), status]
            with suppress(OSError):
                socket.send_fds(self._control, [kind.encode()], theirs)
        for fd in (requests, answers, status):
            os.close(fd)
        return ForkedProcess(self, os.fdopen(ours, "w"), os.fdopen(ours_too), told)

    def retire(self) -> None:
        """Let it end when it has done what it was asked."""
        self._control.close()

    def kill(self) -> None:
        """End it at once; what was forked goes on, what was not never will be."""
        self._control.close()
        self._process.kill()
        self._process.wait()


class ForkedProcess:
    """A process of the server's, which has the parts of a `subprocess.Popen` that are needed.

    As of that, threads may ask it and end it at the same time.

    Attributes:
        stdin: what the process reads.
        stdout: what it answers.
    """

    def __init__(self, server: ForkServer, stdin: IO[str], stdout: IO[str], status: int) -> None:
        self._server = server
        self.stdin = stdin
        self.stdout = stdout
        self._listening = Lock()
        self._status = status
        os.set_blocking(status, False)
        weakref.finalize(self, os.close, status)
        self._pid: int | None = None
        self._code: int | None = None

    @property
    def pid(self) -> int | None:
        """The number of the process and of its group; None: it was not forked yet."""
        self._listen()
        return self._pid

    def poll(self) -> int | None:
        """How it ended, as of `subprocess.Popen.poll`."""
        self._listen()
        return self._code

    def wait(self) -> int:
        """Wait until it ends; how it did."""
        while (code := self.poll()) is None:
            self._await_news(None)
        return code

    def kill(self) -> None:
        """End it and all that it started; where it was not forked yet, it ends as it begins."""
        if self.pid is None and self.poll() is None:
            with suppress(OSError):
                self.stdin.close()
            if not self._await_news(_PATIENCE):
                self._server.kill()
                self._await_news(None)
        if self.poll() is None:
            self._kill_group()

    def _await_news(self, seconds: float | None) -> bool:
        """Wait until something is told of the process; False: nothing was in so many seconds."""
        return bool(select.select([self._status], [], [], seconds)[0])

    def _kill_group(self) -> None:
        if self._pid is not None:
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.killpg(self._pid, signal.SIGKILL)

    def _listen(self) -> None:
        """Hear what has been told of the process."""
        with self._listening:
            while self._code is None:
                try:
                    told = os.read(self._status, NUMBER.size)
                except BlockingIOError:
                    return
                if not told:  # whoever would tell was killed
                    self._kill_group()
                    self._code = -signal.SIGKILL
                elif self._pid is None:
                    (self._pid,) = NUMBER.unpack(told)
                else:
                    (self._code,) = NUMBER.unpack(told)


def _surroundings() -> tuple[Path, dict[str, str]]:
    return Path.cwd(), lent_environment()
