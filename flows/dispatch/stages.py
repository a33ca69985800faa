"""Following the stages of models on workers, for whoever looks on; nothing depends on it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterParentFlowRunId,
)
from prefect.client.schemas.objects import StateType

from transforms.stages import Stage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun, TaskRun

    from flows.services import Listener

_MOST = 200  # runs a question; a larger zoo is not watched line by line anyway


class StageWatch:
    """Tells a listener of stages by the task runs that the server knows.

    Args:
        client: Prefect's.
        listener: hears of each stage's beginning and end once, some seconds late.
    """

    def __init__(self, client: SyncPrefectClient, listener: Listener) -> None:
        self._client = client
        self._listener = listener
        self._told: set[tuple[UUID, StateType]] = set()

    def look(self, runs: list[UUID]) -> None:
        """Tell what is new of these runs; a server that does not answer is asked again later."""
        with suppress(Exception):
            models = self._models(runs[:_MOST])
            wanted = FlowRunFilter(id=FlowRunFilterId(any_=list(models)))
            found = self._client.read_task_runs(flow_run_filter=wanted, limit=_MOST)
            for task in sorted(found, key=_place):
                if task.flow_run_id is not None and task.flow_run_id in models:
                    self._tell(task, *models[task.flow_run_id])

    def _models(self, runs: list[UUID]) -> Mapping[UUID, tuple[str, str]]:
        """The runs of single models among these runs and those that they made, by their id."""
        found: list[FlowRun] = []
        for wanted in (
            FlowRunFilter(id=FlowRunFilterId(any_=runs)),
            FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=runs)),
        ):
            found += self._client.read_flow_runs(flow_run_filter=wanted, limit=_MOST)
        return {
            run.id: (str(run.parameters["model"]), str(run.parameters.get("target", "cpu")))
            for run in found
            if "model" in run.parameters
        }

    def _tell(self, task: TaskRun, model: str, target: str) -> None:
        name = task.name.partition("-")[0]
        state = task.state.type if task.state is not None else None
        if name not in set(Stage) or state not in (StateType.RUNNING, StateType.COMPLETED):
            return
        if (task.id, StateType.RUNNING) not in self._told:
            self._told.add((task.id, StateType.RUNNING))
            self._listener.stage_began(model, target, Stage(name))
        if state is StateType.COMPLETED and (task.id, state) not in self._told:
            self._told.add((task.id, state))
            seconds = task.total_run_time.total_seconds()
            self._listener.stage_ended(model, target, Stage(name), seconds)


def _place(task: TaskRun) -> int:
    """Where its stage stands among the stages: several may end between two looks."""
    name = task.name.partition("-")[0]
    return list(Stage).index(Stage(name)) if name in set(Stage) else 0
