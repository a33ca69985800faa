"""The flows that convert many models: on workers or here, and the batch that a worker converts."""

import time
from collections.abc import Iterable, Mapping
from typing import Annotated, Any
from uuid import UUID

from prefect import State, flow
from prefect.client.orchestration import get_client
from prefect.runtime import deployment
from prefect.states import Completed, Failed
from pydantic import Field

from flows.connection import FlowName
from flows.convert_model import ModelChoice, TagChoice, TargetChoice
from flows.fan_out import Conversions, load_placement
from flows.in_process import convert_here
from flows.outcome.artifacts import leave_artifact
from flows.outcome.failures import failure_report, link_report, with_failure_page
from flows.outcome.reports import refresh_index
from flows.outcome.results import ModelResult, RunResult, results_markdown
from flows.parameters import ConversionOptions, RunLimits
from flows.plan import PlannedModel, plan, sort_out, unplanned_row
from flows.runs import (
    NOTHING_KEPT,
    Runs,
    failed,
    first_of,
    leave_row,
    rows_left_before,
    run_name,
    tag_run,
    this_run,
)
from flows.services import Recorder, services
from tasks.retries import patiently
from zoo.errors import MenagerieError


@flow(
    name=FlowName.CONVERT_BATCH.value,
    flow_run_name=run_name(lambda asked: f"{first_of(asked['models'])} for {asked['target']}"),
    **NOTHING_KEPT,
)
def convert_batch(
    models: list[str],
    target: str = "cpu",
    options: ConversionOptions = ConversionOptions(),  # noqa: B008 - frozen
    build_keys: dict[str, str] = {},  # noqa: B006 - Prefect reads the defaults for its form
) -> State[RunResult]:
    """Convert models one after another; each leaves its row on this run as soon as it is done.

    Run again after a crash, it goes on with the models that have no row yet. A model that fails is
    a task that failed; this run has done what it is for.

    Args:
        models: Names of models in the manifest.
        target: For which target.
        options: The same for every model.
        build_keys: What was planned: builds that the store lacks, by model. None: it is to be.
    """
    tag_run([*models, target])
    recorder = _RowLeaver(this_run(), rows_left_before())
    rest = [model for model in models if (model, target) not in recorder.rows]
    planned = _planned(rest, target, options, build_keys, recorder)
    work = sort_out(planned, recorder.model_ended)
    convert_here(work, options, recorder)
    run = RunResult(results=tuple(recorder.rows.values()), store=options.store_url)
    name = "Completed" if run.succeeded else "With failures"
    return Completed(name=name, message=run.summary, data=run)


def _planned(
    models: list[str],
    target: str,
    options: ConversionOptions,
    build_keys: Mapping[str, str],
    recorder: Recorder,
) -> list[PlannedModel]:
    """What is to be done; where that cannot be found out nothing, and a row for each model."""
    if not models:
        return []
    try:
        return patiently(lambda: plan(models, [target], options, known=build_keys))
    except MenagerieError as error:
        for model in models:
            recorder.model_ended(unplanned_row(model, target, error))
        return []


class _RowLeaver(Recorder):
    """Leaves every row on the run, besides keeping it."""

    def __init__(self, run: UUID, left: Iterable[ModelResult]) -> None:
        super().__init__(services().listener)
        self._run = run
        self.rows.update({(row.model, row.target): row for row in left})

    def model_ended(self, result: ModelResult) -> None:
        """Keep it, pass it on and leave it."""
        super().model_ended(result)
        leave_row(result, self._run)


def _conversion_name(asked: Mapping[str, Any]) -> str:
    """E.g. `convert resnet18 and 3 more for metal`."""
    models = [*asked["models"], *(f"tag {tag}" for tag in asked["selected_tags"])]
    what = f"convert {first_of(models) or 'the default models'}"
    targets = ", ".join(map(str, asked["targets"]))
    return f"{what} for {targets}" if targets else what


@flow(
    name=FlowName.CONVERT_ZOO.value,
    flow_run_name=run_name(_conversion_name),
    **NOTHING_KEPT,
)
def convert_zoo(
    models: list[ModelChoice] = [],  # noqa: B006 - Prefect reads the defaults for its form
    selected_tags: list[TagChoice] = [],  # noqa: B006
    targets: list[TargetChoice] = [],  # noqa: B006
    options: ConversionOptions = ConversionOptions(),  # noqa: B008 - frozen
    *,
    limits: RunLimits = RunLimits(),  # noqa: B008
    jobs: Annotated[int, Field(ge=1, le=64)] = 1,
) -> RunResult | State[RunResult]:
    """Convert models on the workers of the server; without any, here, one after another.

    A model that fails never stops the others; the table at the end is complete. The run's state is
    failed if any model did, and holds the table all the same: call it with `return_state`.

    Args:
        models: Models to convert. None, and no tags: those with the tag default.
        selected_tags: All models with one of these tags, too.
        targets: For which targets. None: all that a model supports.
        options: The same for every model.
        limits: How long the run waits for what.
        jobs: Models converted at a time where there are no workers.
    """
    began = time.perf_counter()
    try:
        planned = list(services().planned.values()) or patiently(
            lambda: plan(models, targets, options, tags=selected_tags)
        )
    except MenagerieError as error:  # raised, it would be a traceback in the run's log
        return Failed(message=str(error), data=error)
    tag_run({name for one in planned for name in (one.model, one.target)})
    results = [
        _with_page(row, options.store_url) for row in _convert_all(planned, options, limits, jobs)
    ]
    page = refresh_index()
    run = RunResult(
        results=tuple(results),
        store=options.store_url,
        report=str(page) if page is not None else None,
        seconds=time.perf_counter() - began,
    )
    leave_artifact(
        "convert-zoo", f"Conversion run: {run.summary}", lambda: results_markdown(results)
    )
    if not run.succeeded:
        return failed(run.summary, run)
    return run


def _convert_all(
    planned: list[PlannedModel], options: ConversionOptions, limits: RunLimits, jobs: int
) -> list[ModelResult]:
    """Rows for all models in the planned order; what is in the store gets no run of its own."""
    recorder = Recorder(services().listener)
    work = sort_out(planned, recorder.model_ended)
    until = time.monotonic() + limits.hours * 3600
    with get_client(sync_client=True) as client:
        runs = Runs(client, this_run())
        if work and runs.deployments(FlowName.CONVERT_BATCH):
            Conversions(
                runs,
                placement=load_placement(),
                limits=limits,
                options=options,
                recorder=recorder,
                attended=deployment.get_id() is None,
            ).convert(work, until)
        else:
            convert_here(work, options, recorder, jobs, until)
    return [recorder.rows[one.model, one.target] for one in planned]


def _with_page(row: ModelResult, store: str) -> ModelResult:
    """The row with a page, if it failed without a run of its own that left one."""
    if row.succeeded or row.report is not None:
        return row
    return link_report(with_failure_page(row, failure_report(row)), store)
