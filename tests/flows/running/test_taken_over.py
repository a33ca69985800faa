"""A host that was cut off and comes back does not speak for a run that another one has done."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.exceptions import Abort
from prefect.runtime import flow_run
from prefect.states import Completed, Crashed, Running, Scheduled

from flows import this_run
from flows.this_run import failed, our_flow


def runs_elsewhere(client: SyncPrefectClient, run: Any) -> None:
    """The server gives the run up; another process begins it and ends it well."""
    for state in (Crashed(), Scheduled(), Running(), Completed()):
        client.set_flow_run_state(run, state, force=True)


@pytest.mark.usefixtures("prefect_server")
def test_the_state_by_the_process_that_has_the_run_counts() -> None:
    """It fails here, after it was completed there: it stays completed."""
    ids = []

    @our_flow("fail")
    def cut_off() -> Any:
        ids.append(flow_run.get_id())
        with get_client(sync_client=True) as client:
            runs_elsewhere(client, ids[0])
        return failed("the store does not answer", None)

    with pytest.raises(Abort):
        cut_off()
    with get_client(sync_client=True) as client:
        assert client.read_flow_run(ids[0]).state.name == "Completed"


@pytest.mark.usefixtures("prefect_server")
def test_a_process_that_still_has_its_run_says_how_it_ended() -> None:
    """No other process began it."""

    @our_flow("fail")
    def alone() -> Any:
        return failed("it did not work", None)

    state = alone(return_state=True)
    assert (state.name, state.message) == ("Failed", "it did not work")


@pytest.mark.usefixtures("prefect_server")
def test_a_line_that_is_down_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is asked again until it answers: what it says then counts."""
    real, asked = this_run.get_client, []

    def away(**options: Any) -> Any:
        asked.append(options)
        if len(asked) < 3:
            raise httpx.ConnectError("no route to host")
        return real(**options)

    monkeypatch.setattr(this_run, "get_client", away)
    monkeypatch.setattr(this_run, "_LOOK_SECONDS", 0.0)

    @our_flow("fail")
    def cut_off() -> Any:
        with get_client(sync_client=True) as client:
            runs_elsewhere(client, flow_run.get_id())
        return failed("the store does not answer", None)

    with pytest.raises(Abort):
        cut_off()
    assert len(asked) == 3
