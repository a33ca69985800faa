"""The process behind `tasks.model_process.ModelProcess`: `python -m tasks.serve_model [KIND]`."""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import threading
from typing import IO, TYPE_CHECKING

from tasks.failures import Failure
from tasks.job import Job
from tasks.model_process import Answer, Request
from tasks.stages import STAGES
from zoo.errors import SourceRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.stages import ModelHolder

__all__ = ["main"]


def main(hold: Callable[[Job], ModelHolder] | None = None) -> None:
    """Serve one job from standard input; what libraries print goes to standard error.

    Ends with the process, when the other side closes.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests = _lines(sys.stdin)
    if hold is None:
        hold = _model_stages()
    job = Job.model_validate_json(requests.get())
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(job.threads)  # more wait for each other where cores are busy
    model = hold(job)
    while True:
        answer = _answer(model, Request.model_validate_json(requests.get()), job.model)
        answers.write(answer.model_dump_json() + "\n")
        answers.flush()


def _model_stages() -> Callable[[Job], ModelHolder]:
    """The real stages; their libraries come while the job is not there yet.

    The command may name the kind of source that the model will likely be of.
    """
    import transforms.lowering.cpu  # noqa: F401 - Inductor takes a second
    from tasks.model_stages import ModelStages
    from zoo.sources import load_library

    for kind in sys.argv[1:]:
        load_library(kind)
    return ModelStages


def _answer(model: ModelHolder, request: Request, name: str) -> Answer:
    place = f"{name}, {request.stage}"
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
    main()
