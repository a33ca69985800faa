"""The process behind `tasks.isolated.IsolatedBench`: `python -m tasks.bench_process`."""

from __future__ import annotations

import functools
import logging
import os
import queue
import signal
import sys
import threading
from typing import IO, TYPE_CHECKING

from tasks.failures import Failure
from tasks.isolated import Answer, Request
from tasks.job import Job, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic import BaseModel

    from tasks.bench import Bench

__all__ = ["main", "serve"]


def main(make_bench: Callable[[Job], Bench] | None = None) -> None:
    """Serve one job from standard input; what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests = _lines(sys.stdin)
    make_bench = make_bench or _workshop()  # imports torch while the job is not there yet
    job = Job.model_validate_json(requests.get())
    serve(make_bench, job, requests, answers)


def serve(
    make_bench: Callable[[Job], Bench], job: Job, requests: queue.Queue[str], answers: IO[str]
) -> None:
    """Answer each request; ends with the process, when the other side closes."""
    bench = make_bench(job)
    stages: Mapping[Stage, Callable[[Request], BaseModel]] = {
        Stage.PULL: lambda _: bench.pull(),
        Stage.EXPORT: lambda _: bench.export(),
        Stage.TRANSFORM: lambda _: bench.transform(),
        Stage.LOWER: lambda _: bench.lower(),
        Stage.LOCATE: lambda request: bench.locate(request.suspects),
    }
    while True:
        request = Request.model_validate_json(requests.get())
        work = functools.partial(stages[request.stage], request)
        answer = _answer(work, f"{job.model}, {request.stage}")
        answers.write(answer.model_dump_json() + "\n")
        answers.flush()


def _answer(stage: Callable[[], BaseModel], place: str) -> Answer:
    try:
        return Answer(record=stage().model_dump_json())
    except Exception as error:
        logging.getLogger(__name__).exception("%s failed", place)  # the whole story, in the log
        return Answer(failure=Failure.of(error, place))


def _lines(source: IO[str]) -> queue.Queue[str]:
    """The lines of `source` as they come; its end is the end of this process and its children."""
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in source:
            lines.put(line.rstrip("\n"))
        if os.getpgrp() == os.getpid():  # our own group: take the compilers along
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    return lines


def _workshop() -> Callable[[Job], Bench]:
    from tasks.workshop import Workshop

    return Workshop


if __name__ == "__main__":
    main()
