"""Whoever looks on sees the stages of models on workers, and harms nothing by looking."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from prefect.client.schemas.objects import FlowRun, StateType, TaskRun
from prefect.states import Completed, Failed, Running

from flows.dispatch.stages import StageWatch
from flows.services import SilentListener

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

    from transforms.stages import Stage

FLOW = uuid.uuid4()


class Heard(SilentListener):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def stage_began(self, model: str, target: str, stage: Stage) -> None:
        """Write it down."""
        self.said.append(f"{model} for {target}: {stage} …")

    def stage_ended(self, model: str, target: str, stage: Stage, seconds: float) -> None:
        """Write it down."""
        self.said.append(f"{model} for {target}: {stage} {seconds:.0f} s")


class Client:
    """A server with a run of a batch, which has a run of one model with some tasks."""

    def __init__(self) -> None:
        self.batch = FlowRun(flow_id=FLOW, parameters={"models": ["ant"]})
        self.single = FlowRun(flow_id=FLOW, parameters={"model": "ant", "target": "metal"})
        self.tasks: list[TaskRun] = []
        self.away = False

    def read_flow_runs(self, *, flow_run_filter: Any, limit: int) -> list[FlowRun]:
        """The batch by its id, the single run by its parent."""
        if self.away:
            raise ConnectionError
        return [self.batch] if flow_run_filter.id is not None else [self.single]

    def read_task_runs(self, *, flow_run_filter: Any, limit: int) -> list[TaskRun]:
        """The tasks of the runs that are asked for."""
        return [t for t in self.tasks if t.flow_run_id in flow_run_filter.id.any_]

    def have(self, name: str, state: State[Any]) -> None:
        """A task of the single run."""
        known = next((t for t in self.tasks if t.name == name), None)
        if known is None:
            known = TaskRun(name=name, task_key="k", dynamic_key="0", flow_run_id=self.single.id)
            self.tasks.append(known)
        known.state = state
        known.total_run_time = timedelta(seconds=3)


def test_stages_are_told_once() -> None:
    """Beginning and end of each, however often it is looked; other tasks are none of ours."""
    client, heard = Client(), Heard()
    watch = StageWatch(client, heard)  # type: ignore[arg-type]
    client.have("export-3b4", Running())
    client.have("pull-1a2", Completed())
    client.have("summary-5c6", Running())
    for _ in range(2):
        watch.look([client.batch.id])
    client.have("export-3b4", Completed())
    watch.look([client.batch.id])
    client.have("lower-7d8", Failed())
    watch.look([client.batch.id])
    assert heard.said == [
        "ant for metal: pull …",
        "ant for metal: pull 3 s",
        "ant for metal: export …",
        "ant for metal: export 3 s",
    ]
    assert client.tasks[-1].state is not None
    assert client.tasks[-1].state.type is StateType.FAILED


def test_a_server_that_is_away_is_no_trouble() -> None:
    """The next look tells what was missed."""
    client, heard = Client(), Heard()
    watch = StageWatch(client, heard)  # type: ignore[arg-type]
    client.have("pull-1a2", Running())
    client.away = True
    watch.look([client.batch.id])
    assert heard.said == []
    client.away = False
    watch.look([client.batch.id])
    assert heard.said == ["ant for metal: pull …"]
