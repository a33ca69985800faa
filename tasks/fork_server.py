"""The process behind `tasks.forked.ForkServer`: `python -m tasks.fork_server`.

It loads the libraries once and forks itself for each model. It never runs a model: no computation,
hence no thread that a fork would lose.
"""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from tasks import serve_model
from tasks.forked import NUMBER

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.job import Job
    from tasks.stages import ModelHolder

_MESSAGE_BYTES = 256  # of a message, which names a kind of source


class _Ends(NamedTuple):
    """The child's ends of what it shares with who asked for it, as file descriptors."""

    requests: int
    answers: int
    log: int
    status: int


def main(
    hold: Callable[[Job], ModelHolder] = serve_model.model_stages,
    load: Callable[[str | None], None] = serve_model.load,
) -> None:
    """Serve the socket that is standard input until its other side closes.

    Each message names a kind of source, whose library is loaded. With `_Ends` beside it, a process
    is forked that serves one job.

    Args:
        hold: makes what holds the model of a job.
        load: loads what models of a kind need; None: what all need.
    """
    control = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    load(None)
    while True:
        message, fds, *_ = socket.recv_fds(control, _MESSAGE_BYTES, len(_Ends._fields))
        if not message:
            return
        load(message.decode())
        if fds and os.fork() == 0:
            control.close()
            _guard(_Ends(*fds), hold)
        for fd in fds:
            os.close(fd)
        with suppress(ChildProcessError):  # there are none
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass


def _guard(ends: _Ends, hold: Callable[[Job], ModelHolder]) -> None:
    """Fork the process of a model, wait until it ends, and tell how."""
    if (child := os.fork()) == 0:
        _serve(ends, hold)
    for fd in (*range(sys.stderr.fileno() + 1), ends.requests, ends.answers, ends.log):
        os.close(fd)
    # It is told before the number can become another's, which is when it has been waited for.
    ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    if ended is not None:
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        with suppress(BrokenPipeError):
            os.write(ends.status, NUMBER.pack(code))
    os._exit(0)


def _serve(ends: _Ends, hold: Callable[[Job], ModelHolder]) -> None:
    """Be a model's process: a group of its own, with the usual three files."""
    os.setsid()
    os.write(ends.status, NUMBER.pack(os.getpid()))
    for fd, standard in zip(ends[:3], (sys.stdin, sys.stdout, sys.stderr), strict=True):
        os.dup2(fd, standard.fileno())
    for fd in ends:
        os.close(fd)
    serve_model.main(hold)


if __name__ == "__main__":
    main()
