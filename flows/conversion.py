"""The conversion of one model for one target: its stages in order, as a task of a run."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Annotated, Any, TypeVar

from prefect import State
from prefect.logging import get_run_logger
from prefect.states import Failed
from pydantic import WithJsonSchema

from flows.pages import Ended, ProgressBar, leave_pages, record, tell
from flows.parameters import ConversionOptions
from flows.plan import PlannedModel, job_for, looked_up
from flows.results import ModelResult, Outcome, Step
from flows.services import Services, services
from flows.this_run import RunFailed, abort_if_superseded
from menagerie.figures import seconds
from menagerie.validation.findings import Verdict
from tasks.failures import ProcessDied, StageTimedOut
from tasks.job import Job, StageRecords
from tasks.prove import NotProven
from tasks.retries import patiently, run_as_task
from tasks.stage_table import (
    EXPORT,
    LOCATE,
    LOWER,
    PUBLISH,
    PULL,
    TRANSFORM,
    VALIDATE,
    ModelHolder,
    RecordT,
    StageKind,
    diagnose,
    search_command,
)
from transforms.stages import Stage
from transforms.targets import all_targets
from zoo.errors import MenagerieError, explain
from zoo.manifest import load_manifest
from zoo.progress import StepDone, progress_to
from zoo.records import ConversionReport, StageTime, dearest
from zoo.report.summary import cause
from zoo.spec import ModelSpec
from zoo.store import Store
from zoo.store.coordination import hold_lease


def _one_of(names: list[str], title: str) -> dict[str, Any]:
    """Return the schema of a text field, or of a select if there are names to choose from."""
    chosen = {"enum": names} if names else {}
    return {"type": "string", "title": title, **chosen}


_SPECS: dict[str, ModelSpec] = {}
# A flow must stay importable; the command that runs it reports the error.
with suppress(MenagerieError):
    _SPECS.update(load_manifest().models)
_TAGS = sorted({tag for spec in _SPECS.values() for tag in spec.tags})

ModelChoice = Annotated[str, WithJsonSchema(_one_of(sorted(_SPECS), "Model"))]
TagChoice = Annotated[str, WithJsonSchema(_one_of(_TAGS, "Tag"))]
TargetChoice = Annotated[str, WithJsonSchema(_one_of(list(all_targets()), "Target"))]

T = TypeVar("T")


class Conversion:
    """The conversion of a planned model: its stages, and the services that they use."""

    def __init__(self, planned: PlannedModel, job: Job, given: Services) -> None:
        self._planned = planned
        self._job = job
        self._given = given
        self._at: Stage | Step = Step.FLOW
        self._times: list[StageTime] = []
        self._report: ConversionReport | None = None
        self._began = time.perf_counter()
        self._bar = ProgressBar(f"{job.model}-{job.target}-progress", len(Stage) - 1)

    def run(self) -> Ended:
        """Convert, prove and publish; remove the working folder afterwards.

        If a stage fails, earlier releases are untouched.
        """
        try:
            self._job.folder.mkdir(parents=True)
            with self._given.hold(self._job) as model:
                records = self._lowered(model)
                self._report = self._proven(model, records)
            published = self._judged(PUBLISH, records)
        except Exception as error:  # noqa: BLE001 - any error ends only this model
            ours = explain(error, self._job.model)
            judged = self._report if isinstance(error, NotProven) else None
            return Ended(self._row(_outcome(error), self._at, ours), judged, ours)
        finally:
            shutil.rmtree(self._job.folder, ignore_errors=True)
        self._bar.show(len(self._times), "published")
        row = self._row(Outcome.PUBLISHED if published.kept is None else Outcome.PROVEN)
        stored = published.model_dump(exclude={"state"}) | {"proof": published.state}
        return Ended(row.model_copy(update=stored), self._report)

    def _lowered(self, model: ModelHolder) -> StageRecords:
        def made(kind: StageKind[RecordT]) -> RecordT:
            return self._stage(kind, lambda: model.run(kind))

        pulled = made(PULL)
        made(EXPORT)
        transformed, lowered = made(TRANSFORM), made(LOWER)
        return StageRecords(
            pulled=pulled, transformed=transformed, lowered=lowered, stages=tuple(self._times)
        )

    def _judged(self, kind: StageKind[RecordT], records: StageRecords) -> RecordT:
        """Run a stage that needs only the bundle, and return its record."""
        work = self._given.instead.get(kind.stage) or kind.function
        if work is None:
            raise TypeError(f"{kind.stage} needs the model")
        return self._stage(kind, lambda: work(self._job, records))

    def _proven(self, model: ModelHolder, records: StageRecords) -> ConversionReport:
        try:
            return self._judged(VALIDATE, records)
        except NotProven as error:  # the table shows its figures too
            self._report = report = failed = error.report
            if not self._job.suspected(report.validation):
                raise
            if self._job.search_seconds:
                with suppress(Exception):  # e.g. no space for the new report: the verdict stays
                    report = self._stage(
                        LOCATE, lambda: diagnose(model, self._job, failed, records)
                    )
                self._at, self._report = Stage.VALIDATE, report
            reason = cause(report.diagnosis) if report.diagnosis is not None else ""
            advice = ". ".join(filter(None, (dearest(report), reason)))
            advice = advice or f"The first node that is wrong: `{search_command(self._job)}`"
            raise NotProven(
                error.place, error.fact, f"{error.next_step}. {advice}", report
            ) from error

    def _stage(self, kind: StageKind[Any], work: Callable[[], T]) -> T:
        """Run a stage as a Prefect task; measure its time and report it to the listener."""
        listener, stage = self._given.listener, kind.stage
        self._at = stage
        listener.stage_at(self._job.model, self._job.target, stage)
        self._bar.show(len(self._times), stage.value)
        began = time.perf_counter()
        name = f"{stage}: {self._job.model} for {self._job.target}"
        result = run_as_task(
            stage.value, lambda: self._heard(stage, work), retried=kind.retried, run_name=name
        )
        took = time.perf_counter() - began
        self._times.append(StageTime(stage=stage, seconds=took))
        get_run_logger().info("%s: done in %s", stage, seconds(took))
        listener.stage_ended(self._job.model, self._job.target, stage, took)
        return result

    def _heard(self, stage: Stage, work: Callable[[], T]) -> T:
        """Run a stage; log each of its steps, and update the progress bar."""
        log = get_run_logger()

        def step_done(step: StepDone) -> None:
            log.info("%s: %s", stage, step.text)
            done = len(self._times) + 0.99 * step.share  # full when the stage has ended
            self._bar.show(done, f"{stage}: {step.text}")
            self._given.listener.stage_at(self._job.model, self._job.target, stage, step)

        with progress_to(step_done):
            return work()

    def _row(
        self, outcome: Outcome, stage: Stage | Step | None = None, reason: object = None
    ) -> ModelResult:
        took = time.perf_counter() - self._began
        row = self._planned.row(outcome, stage, reason, took)
        row = row.model_copy(update={"stages": tuple(self._times)})
        if self._report is None:
            return row
        return row.with_report(self._report, self._job.reports)


def _outcome(error: Exception) -> Outcome:
    verdict = error.report.validation.verdict if isinstance(error, NotProven) else None
    if verdict is Verdict.TIMED_OUT or isinstance(error, StageTimedOut):
        return Outcome.TIMED_OUT
    judged = isinstance(error, MenagerieError) and not isinstance(error, ProcessDied)
    return Outcome.FAILED if judged else Outcome.CRASHED


def convert_in_task(planned: PlannedModel, options: ConversionOptions, store: Store) -> None:
    """Convert a planned model as a task of the current run; always report its row.

    Skip it if the store already holds a release under the same build key. If forced, convert and
    prove it again, but the store keeps its release. Raise Abort if another process has restarted
    the run.
    """
    began, name = time.perf_counter(), f"{planned.model} for {planned.target}"

    def work() -> State[Any] | None:  # returned: Prefect would log a raised error
        ended = _convert(planned, options, store)
        if not ended.row.succeeded:
            abort_if_superseded()
        row = leave_pages(ended, store, planned.spec.summary)
        record(row)
        tell(row)
        if row.succeeded:
            return None
        return Failed(message=row.verdict, data=RunFailed(name, row.verdict, row))

    try:
        run_as_task("convert-model", work, retried=False, run_name=name)
    except Exception as error:  # noqa: BLE001 - the model or Prefect's API can fail in any way
        if (planned.model, planned.target) not in services().listener.rows:
            took = time.perf_counter() - began
            tell(planned.row(Outcome.CRASHED, Step.FLOW, explain(error, "Prefect"), took))


def _convert(planned: PlannedModel, options: ConversionOptions, store: Store) -> Ended:
    if planned.settled is not None:
        return Ended(planned.settled, error=planned.error)
    try:
        with ExitStack() as claimed:
            message = "The same build is being converted by %s: waiting for it"
            waiting = partial(get_run_logger().info, message)
            claim = partial(hold_lease, store.objects, planned.build_key, waiting=waiting)
            patiently(lambda: claimed.enter_context(claim()))
            # Another process may have converted it since it was planned.
            [now] = patiently(lambda: looked_up([planned], store, force=options.force))
            if now.settled is not None:
                return Ended(now.settled)
            job = job_for(planned, options)
            return Conversion(planned, job, services()).run()
    except (MenagerieError, OSError) as error:  # e.g. no space for a folder
        ours = explain(error, planned.model)
        return Ended(planned.row(Outcome.FAILED, Step.PLAN, ours), error=ours)
