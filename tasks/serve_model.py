"""The process behind `tasks.model_process.ModelProcess`: `python -m tasks.serve_model [KIND]`."""

from __future__ import annotations

import functools
import logging
import os
import queue
import signal
import sys
import threading
from contextlib import suppress
from typing import IO, TYPE_CHECKING, cast

from tasks.failures import Failure
from tasks.model_process import Answer, Request
from tasks.stages import STAGES
from zoo.errors import SourceRefused

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import TextIOWrapper
    from pathlib import Path

    from tasks.job import Job
    from tasks.stages import ModelHolder


@functools.cache
def load(kind: str | None = None) -> None:
    """Import, once, what every model needs and what builds models of this kind of source.

    What cannot be imported is left to the stage that needs it, which says why.
    """
    with suppress(Exception, SystemExit):
        import tasks.model_stages  # noqa: F401
        import transforms.lowering.cpu  # noqa: F401 - Inductor takes a second
        from zoo.sources import load_library

        if kind is not None:
            load_library(kind)


def model_stages(job: Job) -> ModelHolder:
    """The real stages."""
    from tasks.model_stages import ModelStages

    # More threads wait for each other where cores are busy, and none of them survives a fork.
    sys.modules["torch"].set_num_threads(1)
    return ModelStages(job, forks=sys.platform == "linux")


def main(hold: Callable[[Job], ModelHolder] = model_stages) -> None:
    """Serve the jobs of one model from standard input; what libraries print goes to the log.

    Ends with the process, when the other side closes.

    Args:
        hold: makes what holds the model of a job, unless that of the last one turns to it.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    cast("TextIOWrapper", sys.stdout).reconfigure(line_buffering=True)  # it may end at any time
    requests = _lines(sys.stdin)
    request = Request.model_validate_json(requests.get())
    job, model = request.job, hold(request.job)
    while True:
        if request.job != job:
            job = request.job
            _log_to(job.log)
            model = model if model.turn_to(job) else hold(job)
        answer = _answer(model, request)
        answers.write(answer.model_dump_json() + "\n")
        answers.flush()
        request = Request.model_validate_json(requests.get())


def _log_to(path: Path) -> None:
    with path.open("wb") as log:
        for output in (sys.stdout, sys.stderr):
            output.flush()
            os.dup2(log.fileno(), output.fileno())


def _answer(model: ModelHolder, request: Request) -> Answer:
    place = f"{request.job.model}, {request.stage}"
    try:
        record = model.run(STAGES[request.stage], request.suspects)
        return Answer(record=record.model_dump_json())
    except SourceRefused as error:  # a decision, and no fault to look into
        logging.getLogger(__name__).warning("%s refused: %s", place, error)
        return Answer(failure=Failure.of(error, place))
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


if __name__ == "__main__":
    for kind in sys.argv[1:]:
        load(kind)
    main()
