"""What is asked of a real server about runs."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.states import AwaitingRetry, Crashed, Failed, Pending, Running, Scheduled

from flows.results import ModelResult, Outcome
from flows.runs import Runs, leave_row, rows_left_before

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


def test_a_run_that_nobody_has_is_cancelled_at_once(client: SyncPrefectClient) -> None:
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
