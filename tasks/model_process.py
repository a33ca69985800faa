"""A model in a process of its own.

A compiler that crashes or an export that uses up the memory ends that process and becomes the
failure of one model. The process also returns all its memory when the model is done.

The two sides exchange JSON lines: one Request at a time, answered by the stage's steps, then its
record or a Failure. All other output of the process goes to its log file.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, ClassVar, cast

from menagerie.process import signal_name
from tasks.failures import Failure, ProcessDied, StageTimedOut, last_line
from tasks.forking import Child, begin
from tasks.job import Job
from tasks.memory import group_memory, memory_allowed
from tasks.stage_table import ModelHolder, RecordT, StageKind
from transforms.stages import Stage
from zoo.base_models import Frozen
from zoo.progress import StepDone, report_step
from zoo.records import Suspected

_LOOK_SECONDS = 1.0  # between two checks of a working process's memory
_GRACE = 300.0  # seconds beyond the search's own, for a lowering in progress
_READ_BYTES = 2**16


class Request(Frozen):
    """A stage for the process to do, of the job that was named last.

    The first request names a job, later ones only if it changes; only `locate` has suspects.
    """

    job: Job | None = None
    stage: Stage
    suspects: tuple[Suspected, ...] = ()


class Answer(Frozen):
    """A message about a stage: a step, its record, or the reason why there is none."""

    step: StepDone | None = None
    record: str | None = None  # JSON in the record's own form, infinities included
    failure: Failure | None = None


class ModelProcess(ModelHolder):
    """A model in a child process, which ends with the `with` block.

    `start` starts the process, which speaks the protocol above; its output goes to the job's log.
    """

    _alive: ClassVar[set[ModelProcess]] = set()

    def __init__(self, job: Job, *, start: Callable[[str, Path], Child] = begin) -> None:
        self._job = job
        self._named: Job | None = None  # by the last request with a job
        self._process = start(job.spec.source.kind, job.log)
        self._requests = cast("IO[str]", self._process.stdin)
        self._answers = cast("IO[str]", self._process.stdout)
        self._unread = b""
        self._alive.add(self)

    @classmethod
    def stop_all(cls) -> None:
        """Kill all processes started here; callers that wait for one get ProcessDied."""
        for process in tuple(cls._alive):
            process.kill()

    def run(self, kind: StageKind[RecordT], suspects: Sequence[Suspected] = ()) -> RecordT:
        """See `ModelHolder.run`. Kills the process if a stage does not end by itself."""
        seconds = self._job.stage_seconds
        if kind.stage is Stage.LOCATE:
            seconds = self._job.search_seconds + _GRACE
        named = None if self._job is self._named else self._job
        request = Request(job=named, stage=kind.stage, suspects=tuple(suspects))
        self._named = self._job
        with suppress(BrokenPipeError, ValueError):  # it is dead, or was killed;
            self._requests.write(request.model_dump_json() + "\n")  # reading its answer reports it
            self._requests.flush()
        end = time.monotonic() + seconds
        while (step := (answer := self._answer(kind.stage, seconds, end)).step) is not None:
            report_step(step.text, step.share, begins=step.begins)
        if answer.failure is not None:
            raise answer.failure.exception()
        return kind.record.model_validate_json(answer.record or "")

    def switch_to(self, job: Job) -> bool:
        """See `ModelHolder.switch_to`; the next request names the job."""
        if not job.same_model(self._job) or self._process.poll() is not None:
            return False
        job.log.parent.mkdir(parents=True, exist_ok=True)
        self._job = job
        return True

    def __exit__(self, *_: object) -> None:
        self.kill()
        with suppress(BrokenPipeError):
            self._requests.close()
        self._process.wait()
        self._answers.close()
        self._alive.discard(self)

    def kill(self) -> None:
        """Kill the process at once, with the compilers that it started."""
        self._process.kill()

    def _answer(self, stage: Stage, seconds: float, end: float) -> Answer:
        """Return the next answer; kill the process if it uses too much memory before.

        This does not read by lines, because buffered lines could wait unseen.
        """
        allowed = memory_allowed(self._job.memory_bytes)
        while b"\n" not in self._unread:
            if select.select([self._answers], [], [], min(_LOOK_SECONDS, seconds))[0]:
                if not (more := os.read(self._answers.fileno(), _READ_BYTES)):
                    raise self._death(stage)
                self._unread += more
                continue
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
        line, _, self._unread = self._unread.partition(b"\n")
        return Answer.model_validate_json(line)

    def _death(self, stage: Stage) -> ProcessDied:
        code = self._process.wait()
        how = f"exit code {code}: {last_line(self._job.log)}"
        advice = f"See {self._job.log}"
        if code < 0:
            how = signal_name(-code)
            if code == -signal.SIGKILL:
                advice = f"Most likely the memory did not suffice. {advice}"
        return ProcessDied(self._job.model, f"its process died in {stage} ({how})", advice)
