"""Runs of schedules: one makes up for all that were missed, and each says what it will do.

The server's own code makes the runs here, from real schedules.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.schedules import IntervalSchedule
from prefect.flow_engine import run_flow
from prefect.states import Cancelled

from flows.schedules import name_waiting
from flows.upkeep import collect_garbage, verify_releases

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from uuid import UUID

    from prefect import Flow
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

DAY = timedelta(days=1)


class Deployed:
    """A deployment of a flow with daily schedules, one hour apart; its hours begin days ago."""

    def __init__(self, client: SyncPrefectClient, flow: Flow[..., Any], schedules: int) -> None:
        self.client, self.flow = client, flow
        self.noon = datetime.now(UTC) - timedelta(hours=6)
        self.id: UUID = client.create_deployment(
            flow_id=client.create_flow(flow),
            name="by-schedule",
            schedules=[
                DeploymentScheduleCreate(
                    schedule=IntervalSchedule(
                        interval=DAY, anchor_date=self.noon + timedelta(hours=number)
                    )
                )
                for number in range(schedules)
            ],
        )

    def plan(self, since: datetime, until: datetime, **parameters: object) -> list[FlowRun]:
        """Let the server make the runs of these days, the oldest first."""
        self.client.request(
            "PATCH",
            "/deployments/{id}",
            path_params={"id": str(self.id)},
            json={"parameters": parameters},
        )
        asked = {"start_time": since.isoformat(), "end_time": until.isoformat(), "max_runs": 50}
        asked["min_time"] = (until - since).total_seconds()
        place = {"id": str(self.id)}
        self.client.request("POST", "/deployments/{id}/schedule", path_params=place, json=asked)
        return self.runs()

    def runs(self) -> list[FlowRun]:
        """All of its runs, the oldest first."""
        mine = {"deployments": {"id": {"any_": [str(self.id)]}}, "sort": "EXPECTED_START_TIME_ASC"}
        found = self.client.request("POST", "/flow_runs/filter", json=mine).json()
        return [self.client.read_flow_run(each["id"]) for each in found]

    def run(self, run: FlowRun) -> str:
        """Run it here, as a worker does; the name of the state in which it ended."""
        run_flow(self.flow, flow_run=run, parameters=run.parameters, return_type="state")
        state = self.client.read_flow_run(run.id).state
        assert state is not None
        assert state.name is not None
        return state.name


@pytest.fixture
def client(prefect_server: None) -> Iterator[SyncPrefectClient]:
    """Of a server that forgets the deployments of this file."""
    with get_client(sync_client=True) as made:
        yield made
        for deployment in made.read_deployments():
            if deployment.name == "by-schedule":
                made.delete_deployment(deployment.id)


def test_a_week_away_is_made_up_for_by_one_run_of_each_schedule(
    client: SyncPrefectClient, tmp_path: Path
) -> None:
    """The last one of each; in whatever order workers take them, and if the last is through."""
    deployed = Deployed(client, collect_garbage, schedules=2)
    store = str(tmp_path / "store")
    runs = deployed.plan(deployed.noon - 2.5 * DAY, deployed.noon + 0.2 * DAY, store=store)
    assert len(runs) == 6
    ended = {run.id: deployed.run(run) for run in [*runs[4:], *runs[:4]]}
    assert [ended[run.id] for run in runs] == ["Skipped"] * 4 + ["Completed"] * 2
    state = client.read_flow_run(runs[0].id).state
    assert state is not None
    assert f"{deployed.noon:%Y-%m-%d %H:%M} UTC has come since" in str(state.message)


def test_what_is_not_due_or_was_cancelled_makes_up_for_nothing(
    client: SyncPrefectClient, tmp_path: Path
) -> None:
    """Yesterday's is run if somebody cancelled today's, whatever is planned for tomorrow."""
    deployed = Deployed(client, collect_garbage, schedules=1)
    store = str(tmp_path / "store")
    runs = deployed.plan(deployed.noon - 1.5 * DAY, deployed.noon + 2.5 * DAY, store=store)
    yesterday, today, tomorrow, _ = runs
    assert str(tomorrow.expected_start_time) > str(datetime.now(UTC))
    client.set_flow_run_state(today.id, Cancelled())
    assert deployed.run(yesterday) == "Completed"


def test_a_run_that_somebody_asked_for_gives_way_to_none(
    client: SyncPrefectClient, tmp_path: Path
) -> None:
    """It was asked for, at whatever hour; and a scheduled one does not give way to it."""
    deployed = Deployed(client, collect_garbage, schedules=1)
    store = str(tmp_path / "store")
    [old] = deployed.plan(deployed.noon - 1.5 * DAY, deployed.noon - 0.5 * DAY, store=store)
    asked = client.create_flow_run_from_deployment(deployed.id, parameters={"store": store})
    assert deployed.run(old) == "Completed"
    deployed.plan(deployed.noon - 0.5 * DAY, deployed.noon + 0.1 * DAY, store=store)
    assert deployed.run(client.read_flow_run(asked.id)) == "Completed"


def test_what_waits_for_its_hour_says_what_it_will_do(client: SyncPrefectClient) -> None:
    """By its own parameters, as it will be called at work; names that people gave stay."""
    deployed = Deployed(client, verify_releases, schedules=1)
    mine = client.create_flow_run_from_deployment(deployed.id, name="before the holidays")
    begin, end = deployed.noon + 0.5 * DAY, deployed.noon + 2.5 * DAY
    for models, name in (([], "verify all releases"), (["ant", "bee"], "verify ant, bee")):
        deployed.plan(begin, end, models=models)
        assert "verify-releases" in name_waiting(client)
        assert [run.name for run in deployed.runs() if run.id != mine.id] == [name, name]
    assert client.read_flow_run(mine.id).name == "before the holidays"


def test_a_scheduled_run_names_those_after_it(client: SyncPrefectClient, tmp_path: Path) -> None:
    """The server goes on making some, each with a name by chance."""
    deployed = Deployed(client, collect_garbage, schedules=1)
    store = str(tmp_path / "store")
    today, *later = deployed.plan(
        deployed.noon - 0.5 * DAY, deployed.noon + 2.5 * DAY, store=store, dry_run=True
    )
    assert deployed.run(today) == "Completed"
    assert len(later) == 2
    assert {client.read_flow_run(run.id).name for run in later} == {"list garbage"}
