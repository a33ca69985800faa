"""The flow in which a worker converts several models: what `convert-zoo` submits."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from prefect import State, flow
from prefect.states import Completed

from flows.dispatch.in_process import close_lost_children, convert_here
from flows.names import FlowName
from flows.outcome.results import ModelResult, RunResult
from flows.outcome.rows import leave_row, rows_left_before, this_run
from flows.planning.plan import PlannedModel, plan, sort_out, unplanned_row
from flows.request.parameters import ConversionOptions
from flows.run_names import own_name
from flows.running.listener import Recorder
from flows.running.services import services
from flows.running.settings import NOTHING_KEPT, without_heartbeats
from tasks.retries import patiently
from zoo.errors import MenagerieError

__all__ = ["convert_batch"]


_NAME = FlowName.CONVERT_BATCH


@flow(name=_NAME.value, flow_run_name=own_name(_NAME), **NOTHING_KEPT)
def convert_batch(
    models: list[str],
    target: str = "cpu",
    options: ConversionOptions = ConversionOptions(),  # noqa: B008 - frozen
    build_keys: dict[str, str] = {},  # noqa: B006 - Prefect reads the defaults for its form
) -> State[RunResult]:
    """Convert models one after another; each leaves its row on this run as soon as it is done.

    Run again after a crash, it goes on with the models that have no row yet. A model that fails has
    a run of its own below this one, which failed; this one has done what it is for.

    Args:
        models: Names of models in the manifest.
        target: For which target.
        options: The same for every model.
        build_keys: What was planned: builds that the store lacks, by model. None: it is to be.
    """
    recorder = _RowLeaver(this_run(), rows_left_before())
    rest = [model for model in models if (model, target) not in recorder.rows]
    planned = _planned(rest, target, options, build_keys, recorder)
    work = sort_out(planned, recorder.model_ended)
    close_lost_children()
    with without_heartbeats(when=True):  # this run's own tell that all of it is alive
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
