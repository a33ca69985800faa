"""The stages of one conversion in order: timed, told to the listener, and judged."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, TypeVar

from flows.results import ModelResult, Outcome
from tasks.export import export
from tasks.failures import BenchDied, explain
from tasks.job import Evidence, Job, Stage
from tasks.lower import lower
from tasks.publish import publish
from tasks.pull import pull
from tasks.transform import transform
from tasks.validate import NotProven, validate
from zoo.errors import MenagerieError
from zoo.evidence import StageTime

if TYPE_CHECKING:
    from collections.abc import Callable

    from flows.workplace import Workplace
    from zoo.evidence import ConversionReport

__all__ = ["Conversion", "ConversionFailed"]

T = TypeVar("T")


class ConversionFailed(MenagerieError):
    """A model's conversion ended before its release was in the store; `result` is its row."""

    def __init__(self, result: ModelResult) -> None:
        super().__init__(
            f"{result.model} for {result.target}, {result.stage}", result.reason or "no reason"
        )
        self.result = result


class Conversion:
    """Takes one job through its stages.

    Args:
        job: what to convert.
        place: the machinery to do it with.
    """

    def __init__(self, job: Job, place: Workplace) -> None:
        self._job = job
        self._place = place
        self._times: list[StageTime] = []
        self._report: ConversionReport | None = None
        self._began = time.perf_counter()

    def run(self) -> tuple[ModelResult, ConversionReport]:
        """Convert, prove and publish; the working folder is gone afterwards.

        Returns:
            The row for the table, and the report.

        Raises:
            ConversionFailed: at whichever stage; what was published before is untouched.
        """
        self._job.folder.mkdir(parents=True)
        try:
            evidence = self._lowered()
            report = self._prove(evidence)
            published = self._stage(Stage.PUBLISH, lambda: publish(self._place.publish, self._job))
        finally:
            shutil.rmtree(self._job.folder, ignore_errors=True)
        row = self._row(Outcome.PUBLISHED)
        return row.model_copy(update={"proof": published.state}), report

    def _lowered(self) -> Evidence:
        with self._place.open_bench(self._job) as bench:
            pulled = self._stage(Stage.PULL, lambda: pull(bench))
            self._stage(Stage.EXPORT, lambda: export(bench))
            transformed = self._stage(Stage.TRANSFORM, lambda: transform(bench))
            lowered = self._stage(Stage.LOWER, lambda: lower(bench))
        return Evidence(
            pulled=pulled, transformed=transformed, lowered=lowered, stages=tuple(self._times)
        )

    def _prove(self, evidence: Evidence) -> ConversionReport:
        try:
            report = self._stage(
                Stage.VALIDATE, lambda: validate(self._place.prove, self._job, evidence)
            )
        except ConversionFailed as failed:
            if isinstance(failed.__cause__, NotProven):  # its figures belong into the table too
                self._report = failed.__cause__.report
                row = self._row(Outcome.FAILED, Stage.VALIDATE, failed.result.reason)
                raise ConversionFailed(row) from failed.__cause__
            raise
        self._report = report
        return report

    def _stage(self, stage: Stage, work: Callable[[], T]) -> T:
        listener = self._place.listener
        listener.stage_began(self._job.model, self._job.target, stage)
        began = time.perf_counter()
        try:
            result = work()
        except Exception as error:
            raise ConversionFailed(self._failure(stage, error)) from error
        seconds = time.perf_counter() - began
        self._times.append(StageTime(stage=stage, seconds=seconds))
        listener.stage_ended(self._job.model, self._job.target, stage, seconds)
        return result

    def _failure(self, stage: Stage, error: Exception) -> ModelResult:
        judged = isinstance(error, MenagerieError) and not isinstance(error, BenchDied)
        ours = error if isinstance(error, MenagerieError) else explain(error, self._job.model)
        return self._row(Outcome.FAILED if judged else Outcome.CRASHED, stage, str(ours))

    def _row(
        self, outcome: Outcome, stage: Stage | None = None, reason: str | None = None
    ) -> ModelResult:
        row = ModelResult(
            model=self._job.model,
            target=self._job.target,
            outcome=outcome,
            stage=stage,
            reason=reason,
            build_key=self._job.build_key,
            random_weights=self._job.seed,
            seconds=time.perf_counter() - self._began,
            stages=tuple(self._times),
        )
        if self._report is None:
            return row
        return row.with_report(self._report, self._job.reports)
