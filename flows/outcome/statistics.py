"""What conversions cost and how they go, over weeks: from events, the server and the store."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from flows.names import EventKind, FlowName
from flows.outcome.history import events
from menagerie.format.bundle_manifest import moment
from zoo.frozen import Frozen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zoo.store import Release

__all__ = [
    "QueueTime",
    "StageCost",
    "Statistics",
    "StoreSize",
    "Week",
    "conversion_statistics",
    "queue_times",
    "store_growth",
]

_PAGE = 200


class StageCost(Frozen):
    """What a stage of a model has cost; `processor_seconds` where it was measured."""

    model: str
    target: str
    stage: str
    times: int
    seconds: float
    processor_seconds: float


class Week(Frozen):
    """How conversions ended that ended in a week, by outcome; `monday` as ISO 8601."""

    monday: str
    outcomes: dict[str, int]

    @property
    def success(self) -> float | None:
        """The share that failed in nothing, 0 to 1; None where nothing ran."""
        total = sum(self.outcomes.values())
        good = sum(self.outcomes.get(name, 0) for name in ("published", "proven anew", "skipped"))
        return good / total if total else None


class QueueTime(Frozen):
    """How long runs of a flow waited to begin, in seconds after they were due."""

    flow: str
    runs: int
    median: float
    longest: float


class StoreSize(Frozen):
    """What a store held at the end of a week, of what it holds today; equal files count once."""

    monday: str
    releases: int
    bytes: int


class Statistics(Frozen):
    """All of it; what cannot be asked is empty."""

    stages: tuple[StageCost, ...] = ()
    weeks: tuple[Week, ...] = ()
    queue: tuple[QueueTime, ...] = ()
    store: tuple[StoreSize, ...] = ()


def conversion_statistics(weeks: int) -> Statistics:
    """Costs and outcomes of what was converted on this machine in the last `weeks` weeks."""
    since = datetime.now(UTC) - timedelta(weeks=weeks)
    costs: dict[tuple[str, str, str], list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    ended: dict[str, Counter[str]] = defaultdict(Counter)
    for event in events():
        when = datetime.fromisoformat(event["time"])
        if when < since:
            continue
        if event["event"] == EventKind.MODEL:
            ended[_monday(when)][event["outcome"]] += 1
        elif event["event"] == EventKind.STAGE:
            cost = costs[event["model"], event["target"], event["stage"]]
            cost[0] += 1
            cost[1] += event["seconds"]
            cost[2] += event.get("processor_seconds") or 0.0
    return Statistics(
        stages=tuple(
            StageCost(
                model=model,
                target=target,
                stage=stage,
                times=int(times),
                seconds=round(seconds, 3),
                processor_seconds=round(processor, 3),
            )
            for (model, target, stage), (times, seconds, processor) in costs.items()
        ),
        weeks=tuple(Week(monday=m, outcomes=dict(ended[m])) for m in sorted(ended)),
    )


def queue_times(weeks: int) -> tuple[QueueTime, ...]:
    """How long the runs of the configured server waited in the last `weeks` weeks, by flow.

    Raises:
        Exception: of Prefect's client, if the server does not answer.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import (
        FlowFilter,
        FlowFilterName,
        FlowRunFilter,
        FlowRunFilterDeploymentId,
        FlowRunFilterStartTime,
    )

    due = FlowRunFilter(
        start_time=FlowRunFilterStartTime(after_=datetime.now(UTC) - timedelta(weeks=weeks)),
        deployment_id=FlowRunFilterDeploymentId(is_null_=False),
    )
    found = []
    with get_client(sync_client=True) as client:
        for flow in FlowName:
            named = FlowFilter(name=FlowFilterName(any_=[flow.value]))
            waits: list[float] = []
            seen = 0
            while True:
                page = client.read_flow_runs(
                    flow_filter=named, flow_run_filter=due, limit=_PAGE, offset=seen
                )
                seen += len(page)
                waits += [
                    run.estimated_start_time_delta.total_seconds()
                    for run in page
                    if run.start_time is not None  # not one that is still to come
                ]
                if len(page) < _PAGE:
                    break
            if waits:
                waits.sort()
                middle, longest = waits[len(waits) // 2], waits[-1]
                found.append(
                    QueueTime(
                        flow=flow.value,
                        runs=len(waits),
                        median=round(max(0.0, middle), 3),
                        longest=round(max(0.0, longest), 3),
                    )
                )
    return tuple(found)


def store_growth(releases: Iterable[Release]) -> tuple[StoreSize, ...]:
    """How a store came to what it holds, week by week."""
    seen: set[str] = set()
    size = 0
    by_week: dict[str, StoreSize] = {}
    ordered = sorted(releases, key=lambda r: moment(r.manifest.created))
    for count, release in enumerate(ordered, start=1):
        size += len(release.document)
        for entry in release.manifest.listed.values():
            if entry.sha256 not in seen:
                seen.add(entry.sha256)
                size += entry.bytes
        monday = _monday(moment(release.manifest.created))
        by_week[monday] = StoreSize(monday=monday, releases=count, bytes=size)
    return tuple(by_week.values())


def _monday(when: datetime) -> str:
    day = when.astimezone(UTC).date()
    return (day - timedelta(days=day.weekday())).isoformat()
