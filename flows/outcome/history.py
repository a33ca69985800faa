"""What ran: from the server that is meant, else from the events that were written down here."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import Field

from flows.names import EventKind, FlowName
from menagerie.home import home
from transforms.targets import all_targets
from zoo.frozen import Frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["RunRecord", "events", "local_history", "server_history"]


class RunRecord(Frozen):
    """Something that ran, or runs, or is to run."""

    what: str  # the flow, or `conversion`
    name: str
    state: str
    began: str | None  # ISO 8601, UTC; None while it waits
    seconds: float | None
    detail: str = ""
    stages: dict[str, float] = Field(default_factory=dict)  # seconds by stage, where it is known


def server_history(limit: int, model: str | None) -> list[RunRecord]:
    """The latest runs that the configured Prefect server knows, newest first.

    Args:
        limit: how many at most.
        model: only its own conversions and confirmations.

    Raises:
        Exception: of Prefect's client, if the server does not answer.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import (
        FlowFilter,
        FlowFilterName,
        FlowRunFilter,
        FlowRunFilterExpectedStartTime,
        FlowRunFilterName,
    )
    from prefect.client.schemas.sorting import FlowRunSort

    due = FlowRunFilter(  # the scheduler plans weeks ahead
        expected_start_time=FlowRunFilterExpectedStartTime(before_=datetime.now(UTC)),
        name=FlowRunFilterName(any_=_names(model)) if model is not None else None,
    )
    with get_client(sync_client=True) as client:
        found = client.read_flow_runs(
            flow_filter=FlowFilter(name=FlowFilterName(any_=list(FlowName))),
            flow_run_filter=due,
            sort=FlowRunSort.EXPECTED_START_TIME_DESC,
            limit=limit,
        )
        flows = {run.flow_id: client.read_flow(run.flow_id).name for run in _one_a_flow(found)}
    return [
        RunRecord(
            what=flows[run.flow_id],
            name=run.name,
            state=run.state_name or "unknown",
            began=run.start_time.isoformat(timespec="seconds") if run.start_time else None,
            seconds=run.total_run_time.total_seconds() if run.start_time else None,
            detail=(run.state.message or "") if run.state is not None else "",
        )
        for run in found
    ]


def local_history(limit: int, model: str | None) -> list[RunRecord]:
    """The latest conversions of this machine, newest first; see `server_history`."""
    stages: dict[tuple[str, str], dict[str, float]] = {}
    records = []
    for event in events():
        key = event["model"], event["target"]
        if model not in (None, event["model"]):
            continue
        if event["event"] == EventKind.STAGE:
            stages.setdefault(key, {})[event["stage"]] = event["seconds"]
            continue
        where = f"{event['stage']}: " if event.get("stage") else ""
        records.append(
            RunRecord(
                what="conversion",
                name=f"{event['model']} for {event['target']}",
                state=event["outcome"],
                began=event["time"],
                seconds=event["seconds"],
                detail=where + (event.get("reason") or ""),
                stages=stages.pop(key, {}),
            )
        )
    return records[: -limit - 1 : -1]


def _names(model: str) -> list[str]:
    """What runs of one model are called, whoever started them."""
    conversions = [f"{model} for {target}" for target in all_targets()]
    return [*conversions, *(f"{name}: confirm" for name in conversions)]


def _one_a_flow(runs: list[Any]) -> list[Any]:
    return list({run.flow_id: run for run in runs}.values())


def events() -> Iterator[dict[str, Any]]:
    """All whole lines, oldest first; what another version wrote otherwise is passed over."""
    for path in sorted((home() / "logs").glob("events-*.jsonl")):
        for line in path.read_text(errors="replace").splitlines():
            try:
                event = json.loads(line)
                if {"event", "model", "target", "seconds", "outcome", "time"} <= event.keys():
                    yield event
            except (ValueError, AttributeError):
                continue
