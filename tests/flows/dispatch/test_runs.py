"""What is asked of a real server about runs."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.context import FlowRunContext
from prefect.states import AwaitingRetry, Crashed, Failed, Pending, Running, Scheduled

from flows.results import ModelResult, Outcome
from flows.runs import Runs, rows_left_before
from flows.this_run import leave_row, this_run
from zoo.errors import MenagerieError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from prefect import State
    from prefect.client.orchestration import SyncPrefectClient


@flow(name="a run of nothing")
def nothing() -> None:
    """Never called."""


@pytest.fixture
def client(prefect_server: None) -> Iterator[SyncPrefectClient]:
    """Of the session's server."""
    with get_client(sync_client=True) as made:
        yield made


def made(client: SyncPrefectClient, *states: State[None]) -> UUID:
    """A run that went through these states."""
    run = client.create_flow_run(nothing, state=Scheduled())
    for state in states:
        client.set_flow_run_state(run.id, state, force=True)
    return run.id


def test_a_run_that_was_just_taken_does_not_begin_after_it_was_cancelled(
    client: SyncPrefectClient,
) -> None:
    """Its process asks to be Running a moment later, and may not."""
    run = made(client, Pending())
    runs = Runs(client, uuid.uuid4())
    runs.cancel(runs.look([run])[run])
    client.set_flow_run_state(run, Running())
    state = client.read_flow_run(run).state
    assert state is not None
    assert state.is_cancelling()


def test_a_run_without_a_process_is_cancelled_at_once(client: SyncPrefectClient) -> None:
    """There is no process to wait for."""
    run = made(client)
    runs = Runs(client, uuid.uuid4())
    runs.cancel(runs.look([run])[run])
    assert runs.look([run])[run].state_name == "Cancelled"


@pytest.mark.parametrize(
    ("end", "kept"), [(Crashed(), ["ant"]), (Failed(), [])], ids=["crashed", "failed"]
)
def test_rows_from_before_a_crash_count(
    end: State[None], kept: list[str], client: SyncPrefectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that crashed goes on where it was; one that a person has run again starts afresh."""
    run = made(client, Running(), end, AwaitingRetry(), Running())
    row = ModelResult(model="ant", target="cpu", outcome=Outcome.FAILED)
    leave_row(row, run)
    monkeypatch.setenv("PREFECT__FLOW_RUN_ID", str(run))
    assert [left.model for left in rows_left_before()] == kept


def test_a_key_has_one_run_and_one_place_in_the_ui(client: SyncPrefectClient) -> None:
    """Whether it is submitted again by the same process, or by one that took the parent over."""
    deployment = client.create_deployment(client.create_flow(nothing), "of nothing")

    @flow
    def parent() -> UUID:
        runs = Runs(client, this_run())
        for key in ("first", "first", "restart", "first", "second"):
            if key == "restart":  # what a new process knows of the old one's tasks
                context = FlowRunContext.get()
                assert context is not None
                context.task_run_dynamic_keys.clear()
            else:
                runs.submit(deployment, {}, name=key, tags=[], key=key)
        return this_run()

    above = parent()
    children = {run.name: run.parent_task_run_id for run in Runs(client, above).children()}
    wanted = FlowRunFilter(id=FlowRunFilterId(any_=[above]))
    tasks = client.read_task_runs(flow_run_filter=wanted)
    assert children == {task.dynamic_key: task.id for task in tasks}
    assert children.keys() == {"first", "second"}


def test_a_deployment_that_is_gone_is_said(client: SyncPrefectClient) -> None:
    """As an error of ours, which the dispatch turns into rows."""
    runs = Runs(client, client.create_flow_run(nothing).id)
    with pytest.raises(MenagerieError, match="Prefect"):
        runs.submit(uuid.uuid4(), {}, name="gone", tags=[], key="gone")
