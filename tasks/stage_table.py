"""The stages of a conversion in one table, and the holder of the model while they work on it.

A failed validation leads to a search for the cause, by the same holder.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeAlias, TypeVar

from pydantic import BaseModel

from tasks.job import ExportRecord, Job, PublishRecord, PullRecord, StageRecords
from tasks.prove import prove
from tasks.publish import publish_bundle
from transforms.stages import LowerRecord, Stage, TransformRecord, located
from zoo.manifest import OUR_MODELS
from zoo.records import ConversionReport, Diagnosis, Suspected
from zoo.report.files import write_report

RecordT = TypeVar("RecordT", bound=BaseModel)


@dataclass(frozen=True)
class StageKind(Generic[RecordT]):
    """A stage: the record that it returns, its function, and whether a retry may help.

    If `function` is None, the stage needs the model in memory and a `ModelHolder` does it.
    """

    stage: Stage
    record: type[RecordT]
    function: Callable[[Job, StageRecords], RecordT] | None = None
    retried: bool = False  # whether a retry may help against an unresponsive network


PULL = StageKind(Stage.PULL, PullRecord, retried=True)
EXPORT = StageKind(Stage.EXPORT, ExportRecord)
TRANSFORM = StageKind(Stage.TRANSFORM, TransformRecord)
LOWER = StageKind(Stage.LOWER, LowerRecord)
VALIDATE = StageKind(Stage.VALIDATE, ConversionReport, prove)
LOCATE = StageKind(Stage.LOCATE, Diagnosis)
PUBLISH = StageKind(Stage.PUBLISH, PublishRecord, publish_bundle, retried=True)

STAGES: dict[Stage, StageKind[Any]] = {
    kind.stage: kind for kind in (PULL, EXPORT, TRANSFORM, LOWER, VALIDATE, LOCATE, PUBLISH)
}


class ModelHolder:
    """Holder of one job's model while its stages work on it; each stage is a method of that name.

    A model and its exported programs only live in memory; they are never passed through Prefect,
    which would serialise or hash them. `tasks.model_stages.ModelStages` holds them in this
    process, `tasks.model_process.ModelProcess` in one of its own.
    """

    def run(self, kind: StageKind[RecordT], suspects: Sequence[Suspected] = ()) -> RecordT:
        """Run a stage that has no function of its own; each runs once, in the order of the table.

        `LOCATE` only runs if the bundle turned out wrong, and searches `suspects`. Raise
        MenagerieError if the stage failed.
        """
        given = (suspects,) if kind is LOCATE else ()
        done: RecordT = getattr(self, kind.stage.value)(*given)
        return done

    def switch_to(self, _job: Job) -> bool:
        """Switch to a job of the same model for another target; it is pulled and exported already.

        Return False if the job needs a holder of its own.
        """
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


Hold: TypeAlias = "Callable[[Job], AbstractContextManager[ModelHolder]]"  # holds a job's model


@contextmanager
def shared_model(hold: Hold) -> Iterator[Hold]:
    """Keep a model's holder for its next job within the block, unless a job with it has failed.

    Yield the replacement of `hold`, for one job at a time.
    """
    with ExitStack() as held:
        model: ModelHolder | None = None

        @contextmanager
        def go_on(job: Job) -> Iterator[ModelHolder]:
            nonlocal model
            if model is None or not model.switch_to(job):
                held.close()
                model = held.enter_context(hold(job))
            try:
                yield model
            except BaseException:
                model = None
                held.close()
                raise

        yield go_on


def search_command(job: Job) -> str:
    """Return the command that searches for the first wrong node of a job."""
    words = ["zoo", "debug", "bisect", job.model, "--target", job.target]
    if job.seed is not None:
        words += ["--random-weights", str(job.seed)]
    if job.origin.parent != OUR_MODELS:
        words += ["--manifest", str(job.origin.parent)]
    if job.allow_factories:
        words.append("--allow-factories")
    return shlex.join(words)


def diagnose(
    model: ModelHolder, job: Job, report: ConversionReport, records: StageRecords
) -> ConversionReport:
    """Search for the cause of a failed validation, and rewrite its report with the diagnosis.

    Raise StoreFull or StoreError if the report cannot be written.
    """
    report = located(report, lambda: model.run(LOCATE, job.suspected(report.validation)))
    write_report(report, job.reports, graphs=records.transformed.graphs)
    return report
