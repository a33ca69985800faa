"""The processes behind `tasks.model_process`, as `tasks.forking` starts them.

`python -m tasks.serve_model KIND` serves the jobs of one model; `--fork` loads the libraries once
and forks itself for each model. That server never runs a model: it computes nothing, so it has no
threads that a fork would lose.
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper
from typing import IO, NoReturn, cast

from tasks.failures import Failure
from tasks.forking import PID
from tasks.job import Job
from tasks.model_process import Answer, Request
from tasks.stage_table import STAGES, ModelHolder
from zoo.errors import SourceRefused
from zoo.progress import progress_to

_MESSAGE_BYTES = 256  # of a message, which names a kind of source
_ENDS = 4  # descriptors for a forked process: requests, answers, log, its pid


@functools.cache
def load(kind: str | None = None) -> None:
    """Import, once, what every model needs and what builds models of this kind of source.

    A failed import is left to the stage that needs it, which reports the reason.
    """
    with suppress(Exception, SystemExit):
        import tasks.model_stages  # noqa: F401
        import transforms.lowering.cpu  # noqa: F401 - Inductor takes a second
        from zoo.sources import load_library

        if kind is not None:
            load_library(kind)


def model_stages(job: Job) -> ModelHolder:
    """Return the real stages."""
    from tasks.model_stages import ModelStages

    # Threads wait for each other on busy cores, and none but the caller survives a fork.
    sys.modules["torch"].set_num_threads(1)
    return ModelStages(job, forks=sys.platform == "linux")


def main(hold: Callable[[Job], ModelHolder] = model_stages) -> NoReturn:
    """Serve the jobs of one model from standard input; what libraries print goes to the log.

    `hold` makes the holder of a job's model, unless the previous one can switch to it. The process
    ends when the other side closes.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    cast("TextIOWrapper", sys.stdout).reconfigure(line_buffering=True)  # it may end at any time
    requests = _lines(sys.stdin)
    job: Job | None = None
    model: ModelHolder | None = None
    while True:
        request = Request.model_validate_json(requests.get())
        if model is None or job is None:
            job = cast("Job", request.job)
            model = hold(job)
        elif request.job is not None:
            job = request.job
            with job.log.open("wb") as log:
                for output in (sys.stdout, sys.stderr):
                    output.flush()
                    os.dup2(log.fileno(), output.fileno())
            model = model if model.switch_to(job) else hold(job)

        def answer(said: Answer) -> None:
            answers.write(said.model_dump_json() + "\n")
            answers.flush()

        with progress_to(lambda step: answer(Answer(step=step))):
            answer(_answer(model, job, request))


def _answer(model: ModelHolder, job: Job, request: Request) -> Answer:
    place = f"{job.model}, {request.stage}"
    try:
        record = model.run(STAGES[request.stage], request.suspects)
        return Answer(record=record.model_dump_json())
    except SourceRefused as error:  # a decision, not a fault to investigate
        logging.getLogger(__name__).warning("%s refused: %s", place, error)
        return Answer(failure=Failure.of(error, place))
    except Exception as error:
        logging.getLogger(__name__).exception("%s failed", place)  # with its traceback
        return Answer(failure=Failure.of(error, place))


def _lines(source: IO[str]) -> queue.Queue[str]:
    """Return the lines of `source` as they come; its end kills this process and its children."""
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in source:
            lines.put(line.rstrip("\n"))
        if os.getpgrp() == os.getpid():  # our own group: kill the compilers too
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    return lines


def serve_forks(
    hold: Callable[[Job], ModelHolder] = model_stages, load: Callable[[str | None], None] = load
) -> None:
    """Serve the socket that is standard input, until its other side closes.

    Each message names a kind of source, whose library `load` loads; None means what all models
    need. For a message with `_ENDS` files, fork a process that serves one model, held by `hold`.
    """
    control = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    load(None)
    while True:
        message, fds, *_ = socket.recv_fds(control, _MESSAGE_BYTES, _ENDS)
        if not message:
            return
        load(message.decode())
        if fds:
            gc.freeze()  # loaded objects are never garbage: forks neither scan nor copy them
            if (between := os.fork()) == 0:
                control.close()
                _serve_as_orphan(fds, hold)
            os.waitpid(between, 0)
            for fd in fds:
                os.close(fd)


def _serve_as_orphan(ends: list[int], hold: Callable[[Job], ModelHolder]) -> NoReturn:
    """Serve a model in its own process group, with three files, as the asking process's child."""
    between = os.getpid()
    *files, number = ends
    if os.fork() != 0:
        os._exit(0)
    os.setsid()
    while os.getppid() == between:  # the asking process cannot wait for it before it is adopted
        os.sched_yield()
    os.write(number, PID.pack(os.getpid()))
    for fd, standard in zip(files, (sys.stdin, sys.stdout, sys.stderr), strict=True):
        os.dup2(fd, standard.fileno())
    for fd in ends:
        os.close(fd)
    main(hold)


if __name__ == "__main__":
    if sys.argv[1:] == ["--fork"]:
        serve_forks()
    else:
        load(*sys.argv[1:])
        main()
