"""A model in a process of its own.

A compiler that crashes, an export that eats all memory: both end that process and become the
failure of one model. It also gives back all its memory when the model is done.

The two sides speak JSON, a line each: a Request at a time, and as the answer to it the stage's
record or a Failure. All else that the process prints goes to its log file.
"""

from __future__ import annotations

import select
import signal
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING, ClassVar, Self, cast

from menagerie.process import signal_name
from tasks import warm_start
from tasks.failures import Failure, ProcessDied, StageTimedOut
from tasks.job import Job, Suspect
from tasks.limits import group_memory, group_seconds, memory_allowed
from transforms.stages import Stage
from zoo.base_models import Frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tasks.child import Child
    from tasks.stages import RecordT, StageKind

_LOOK_SECONDS = 1.0  # between two looks at the memory of a process at work
_GRACE = 300.0  # seconds beyond the search's own, for the lowering that was under way


class Request(Frozen):
    """What the process is to do; only `locate` has suspects."""

    job: Job
    stage: Stage
    suspects: tuple[Suspect, ...] = ()


class Answer(Frozen):
    """What the process says after a stage: its record, or why there is none."""

    record: str | None = None  # JSON as the record itself writes it, infinities included
    failure: Failure | None = None


class ModelProcess:
    """A `tasks.stages.ModelHolder` in a child process, which ends with the `with` block.

    Args:
        job: what to convert; its log receives the process's output.
        start: starts the process; it speaks the protocol above.
    """

    _alive: ClassVar[set[ModelProcess]] = set()

    def __init__(self, job: Job, *, start: Callable[[str, Path], Child] = warm_start.start) -> None:
        self._job = job
        self._process = start(job.spec.source.kind, job.log)
        self._requests = cast("IO[str]", self._process.stdin)
        self._answers = cast("IO[str]", self._process.stdout)
        self._alive.add(self)

    @classmethod
    def stop_all(cls) -> None:
        """End all that this process started; whoever waits for one learns that it died."""
        for process in tuple(cls._alive):
            process.kill()

    def run(self, kind: StageKind[RecordT], suspects: Sequence[Suspect] = ()) -> RecordT:
        """See `ModelHolder.run`. Ends the process where a stage does not end by itself."""
        seconds = self._job.stage_seconds
        if kind.stage is Stage.LOCATE:
            seconds = self._job.search_seconds + _GRACE
        request = Request(job=self._job, stage=kind.stage, suspects=tuple(suspects))
        self._send(request.model_dump_json())
        self._await_answer(kind.stage, seconds)
        line = self._answers.readline()
        if not line:
            raise self._death(kind.stage)
        answer = Answer.model_validate_json(line)
        if answer.failure is not None:
            raise answer.failure.exception()
        return kind.record.model_validate_json(answer.record or "")

    def turn_to(self, job: Job) -> bool:
        """See `ModelHolder.turn_to`; the process hears of the job with the first request."""
        if not job.same_model(self._job) or self._process.poll() is not None:
            return False
        job.log.parent.mkdir(parents=True, exist_ok=True)
        self._job = job
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        with suppress(BrokenPipeError):
            self._requests.close()
        self._process.wait()
        self._answers.close()
        self._alive.discard(self)

    def processor_seconds(self) -> float:
        """See `ModelHolder.processor_seconds`; a process that was ended is not counted."""
        group = self._process.pid
        return 0.0 if group is None else group_seconds(group)

    def kill(self) -> None:
        """End the process at once, with the compilers it started."""
        self._process.kill()

    def _await_answer(self, stage: Stage, seconds: float) -> None:
        """Return when there is something to read; end a process that takes too much before."""
        end = time.monotonic() + seconds
        allowed = memory_allowed(self._job.memory_bytes)
        while not select.select([self._answers], [], [], min(_LOOK_SECONDS, seconds))[0]:
            if time.monotonic() >= end:
                self.kill()
                fact = f"{stage} was stopped after {seconds:g} s"
                raise StageTimedOut(self._job.model, fact, f"What it did is in {self._job.log}")
            group = self._process.pid
            taken = 0 if group is None else group_memory(group)
            if taken > allowed:
                self.kill()
                sizes = f"{taken / 2**30:.1f} GiB of the {allowed / 2**30:.1f} GiB allowed"
                fact = f"killed: memory, {stage} took {sizes}"
                raise ProcessDied(self._job.model, fact, "Convert it on a larger machine")

    def _send(self, line: str) -> None:
        try:
            self._requests.write(line + "\n")
            self._requests.flush()
        except (BrokenPipeError, ValueError):
            pass  # it is dead, or its file was closed to end it: reading its answer will say so

    def _death(self, stage: Stage) -> ProcessDied:
        code = self._process.wait()
        how = f"exit code {code}: {_last_line(self._job.log)}"
        advice = f"See {self._job.log}"
        if code < 0:
            how = signal_name(-code)
            if code == -signal.SIGKILL:
                advice = f"Most likely the memory did not suffice. {advice}"
        return ProcessDied(self._job.model, f"its process died in {stage} ({how})", advice)


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"
