"""A run below a run is what Prefect makes of a flow called in a flow, for fewer requests."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any
from uuid import UUID

import httpx
import pytest
from prefect import State, flow, tags
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterParentFlowRunId,
    LogFilter,
    LogFilterFlowRunId,
)
from prefect.client.schemas.objects import StateType
from prefect.context import TaskRunContext
from prefect.logging import get_run_logger
from prefect.logging.handlers import APILogWorker
from prefect.runtime import flow_run
from prefect.settings import PREFECT_LOGGING_TO_API_ENABLED, temporary_settings
from prefect.states import Cancelled

from flows.running.below import run_below
from flows.runs import NOTHING_KEPT, failed, result_of
from tasks.retries import run_as_task

if TYPE_CHECKING:
    from collections.abc import Callable

    from prefect.client.schemas.objects import FlowRun, TaskRun

pytestmark = pytest.mark.usefixtures("prefect_server")


@flow(flow_run_name="{bird} for {target}", **NOTHING_KEPT)
def hatch(bird: str, target: str, eggs: list[int]) -> Any:
    """Whatever a test wants to happen."""
    return DEEDS[bird](sum(eggs))


def gives_up(_: int) -> State[Any]:
    """Failed by its own word."""
    return failed("no chick", "shells")


def breaks(_: int) -> None:
    """An error that nobody caught."""
    raise ValueError("cracked")


def stops(_: int) -> None:
    """As when somebody hits Ctrl-C."""
    raise KeyboardInterrupt


def tells(eggs: int) -> int:
    """Leaves a line in its run's log."""
    get_run_logger().info("%s eggs", eggs)
    return eggs


def in_a_task(_: int) -> tuple[UUID | None, str | None]:
    """The run to which a task belongs, and the one in which it is called."""

    def whose() -> UUID | None:
        context = TaskRunContext.get()
        return context.task_run.flow_run_id if context else None

    return run_as_task("lay", whose, retried=False), flow_run.get_id()


DEEDS: dict[str, Callable[[int], Any]] = {
    "wren": lambda eggs: eggs,
    "dodo": gives_up,
    "robin": breaks,
    "rook": stops,
    "cuckoo": lambda _: Cancelled(message="not here"),
    "jay": tells,
    "tit": in_a_task,
}


def bred(*birds: str, told: list[Any] | None = None) -> tuple[UUID, list[State[Any]]]:
    """The run above and the states of those below it; in `told` also where it does not return."""
    said: list[Any] = [] if told is None else told

    @flow(**NOTHING_KEPT)
    def breed() -> None:
        said.append(UUID(str(flow_run.get_id())))
        for bird in birds:
            with tags(bird, "cpu"):
                said.append(run_below(hatch, {"bird": bird, "target": "cpu", "eggs": [1, 2]}))

    breed()
    return said[0], said[1:]


def runs_below(parent: UUID) -> list[tuple[FlowRun, TaskRun]]:
    """What the server knows of them, oldest first, each with the task run above it."""
    with get_client(sync_client=True) as client:
        wanted = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[parent]))
        found = client.read_flow_runs(flow_run_filter=wanted)
        found.sort(key=lambda run: str(run.start_time))
        return [(run, client.read_task_run(UUID(str(run.parent_task_run_id)))) for run in found]


def test_it_is_below_its_parent_with_name_tags_and_parameters() -> None:
    """All that a person sees of it, and the time at which it began."""
    parent, [state] = bred("wren")
    [(run, placeholder)] = runs_below(parent)
    assert result_of(state) == 3
    assert run.name == "wren for cpu"
    assert set(run.tags) == {"wren", "cpu"}
    assert run.parameters == {"bird": "wren", "target": "cpu", "eggs": [1, 2]}
    assert (run.run_count, run.flow_version) == (1, hatch.version)
    assert run.start_time is not None
    assert (placeholder.state_type, placeholder.name) == (StateType.COMPLETED, "wren for cpu")
    assert placeholder.state is not None
    assert placeholder.state.state_details.child_flow_run_id == run.id


def test_each_ends_by_itself() -> None:
    """One that fails, breaks or is cancelled leaves the run above and those after it alone."""
    parent, states = bred("dodo", "robin", "cuckoo", "wren")
    ends = [StateType.FAILED, StateType.FAILED, StateType.CANCELLED, StateType.COMPLETED]
    assert [state.type for state in states] == ends
    assert result_of(states[0]) == "shells"
    assert isinstance(states[1].result(raise_on_failure=False), ValueError)
    below = runs_below(parent)
    assert [run.state_type for run, _ in below] == ends
    assert [placeholder.state_type for _, placeholder in below] == ends
    assert [run.state.message for run, _ in below[:1] if run.state] == ["no chick"]
    with get_client(sync_client=True) as client:
        assert client.read_flow_run(parent).state_type is StateType.COMPLETED


def test_an_interrupt_crashes_it_and_passes_through() -> None:
    """It does not stay *Running*; what was to come after it does not begin."""
    told: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        bred("rook", "wren", told=told)
    [(run, placeholder)] = runs_below(told[0])
    assert (run.state_type, placeholder.state_type) == (StateType.CRASHED, StateType.CRASHED)


def test_its_log_is_its_own() -> None:
    """With the lines of Prefect's engine."""
    parent, _ = bred("jay")
    [(run, _)] = runs_below(parent)
    APILogWorker.drain_all()
    with get_client(sync_client=True) as client:
        wanted = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run.id]))
        lines = [log.message for log in client.read_logs(log_filter=wanted)]
    assert "Beginning subflow run 'jay for cpu' for flow 'hatch'" in lines
    assert "3 eggs" in lines
    assert "Finished in state Completed()" in lines


def test_its_tasks_are_its_own() -> None:
    """And not those of the run above."""
    parent, [state] = bred("tit")
    [(run, _)] = runs_below(parent)
    assert result_of(state) == (run.id, str(run.id))


class Requests:
    """What Prefect's clients in this process ask, by method and path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: Counter[str] = Counter()
        self.bodies: dict[str, bytes] = {}
        send, send_async = (
            httpx.HTTPTransport.handle_request,
            httpx.AsyncHTTPTransport.handle_async_request,
        )

        def sync(transport: Any, request: httpx.Request) -> httpx.Response:
            self._note(request)
            return send(transport, request)

        async def asynchronous(transport: Any, request: httpx.Request) -> httpx.Response:
            self._note(request)
            return await send_async(transport, request)

        monkeypatch.setattr(httpx.HTTPTransport, "handle_request", sync)
        monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", asynchronous)

    def _note(self, request: httpx.Request) -> None:
        path = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "ID", request.url.path.removeprefix("/api"))
        self.asked[f"{request.method} {path}"] += 1
        self.bodies[path] = request.content


def test_each_asks_the_server_for_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more run below costs two requests to begin it and one to end it."""
    bred("wren")
    APILogWorker.drain_all()
    with temporary_settings({PREFECT_LOGGING_TO_API_ENABLED: False}):  # it sends by the clock
        requests = Requests(monkeypatch)
        bred("wren")
        one = Counter(requests.asked)
        bred("wren", "wren")
    assert requests.asked - one - one == {
        "POST /task_runs/": 1,
        "POST /flow_runs/": 1,
        "POST /flow_runs/ID/set_state": 1,
    }


def test_a_request_sent_twice_makes_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Prefect's client does where an answer was lost: no second run stays *Running*."""
    requests = Requests(monkeypatch)
    parent, _ = bred("wren")
    with get_client(sync_client=True) as client:
        for path in ("/task_runs/", "/flow_runs/"):
            headers = {"Content-Type": "application/json"}
            client.request("POST", path, content=requests.bodies[path], headers=headers)
    assert len(runs_below(parent)) == 1


def test_without_a_run_above_there_is_none_below() -> None:
    """It is said at once, not by a run that hangs in the air."""
    with pytest.raises(RuntimeError, match="no run to be below"):
        run_below(hatch, {"bird": "wren", "target": "cpu", "eggs": []})
