"""Runs that a schedule made: named before they begin, and one that catches up for all missed.

A server makes the runs of a schedule days ahead, and keeps those whose hour passed while nothing
ran: after a week away, each of them would be run.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterExpectedStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.context import FlowRunContext
from prefect.logging import get_run_logger
from prefect.states import Completed

from flows.connection import FlowName
from flows.run_names import SPEAKING

if TYPE_CHECKING:
    from uuid import UUID

    from prefect import State
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

_SCHEDULED = SPEAKING.keys() - {FlowName.CONVERT_BATCH}  # whose runs are named by who submits them
# What does the work of a run before it, or did, or will. One that somebody cancelled does not.
_AT_IT = [
    StateType.SCHEDULED,
    StateType.PENDING,
    StateType.RUNNING,
    StateType.COMPLETED,
    StateType.FAILED,
]


def give_way_to_later() -> State[Any] | None:
    """How the run that this is called in ends at once, if its schedule has a later one that is due.

    So a week that a laptop slept is made up for by one run of each schedule. Runs that nobody
    scheduled never give way. The runs that wait for their hour are given their names, too.
    """
    context = FlowRunContext.get()
    run = context.flow_run if context is not None else None
    if run is None or _schedule(run) is None:
        return None
    try:
        with get_client(sync_client=True) as client:
            name_waiting(client)
            later = _due_later(client, run)
    except httpx.HTTPError as error:  # rather twice than not at all
        get_run_logger().warning("The server was not to be asked of later runs: %s", error)
        return None
    if later is None:
        return None
    fact = f"Missed its hour, and {later.expected_start_time:%Y-%m-%d %H:%M %Z} has come since"
    # Not cancelled: of that Prefect makes an exception, with a traceback in the worker's log.
    return Completed(name="Skipped", message=f"{fact}: that run of the schedule does the work")


def name_waiting(client: SyncPrefectClient) -> set[FlowName]:
    """Name the runs of schedules that have not begun by what they are going to do.

    Returns:
        The flows that have such runs.
    """
    ours = FlowFilter(name=FlowFilterName(any_=[flow.value for flow in _SCHEDULED]))
    flows = {flow.id: FlowName(flow.name) for flow in client.read_flows(flow_filter=ours)}
    waiting = FlowRunFilter(state=_state([StateType.SCHEDULED]))
    runs = client.read_flow_runs(flow_filter=ours, flow_run_filter=waiting)
    scheduled = [run for run in runs if _schedule(run) is not None]
    for run in scheduled:
        if run.name != (name := SPEAKING[flows[run.flow_id]](run.parameters)):
            client.set_flow_run_name(run.id, name)
    return {flows[run.flow_id] for run in scheduled}


def _due_later(client: SyncPrefectClient, run: FlowRun) -> FlowRun | None:
    """The last run of the same schedule whose hour has come, if that is later than this one's."""
    due = FlowRunFilter(
        deployment_id=FlowRunFilterDeploymentId(
            any_=[run.deployment_id] if run.deployment_id else []
        ),
        expected_start_time=FlowRunFilterExpectedStartTime(
            after_=run.expected_start_time, before_=datetime.now(UTC)
        ),
        state=_state(_AT_IT),
    )
    latest = FlowRunSort.EXPECTED_START_TIME_DESC
    for other in client.read_flow_runs(flow_run_filter=due, sort=latest):
        if other.id != run.id and _schedule(other) == _schedule(run):
            return other
    return None


def _schedule(run: FlowRun) -> UUID | None:
    """Which schedule made it; None where somebody or something else did."""
    made = run.created_by
    return made.id if made is not None and made.type == "SCHEDULE" else None


def _state(types: list[StateType]) -> FlowRunFilterState:
    return FlowRunFilterState(type=FlowRunFilterStateType(any_=types))
