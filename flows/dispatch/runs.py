"""What the dispatcher asks of a Prefect server: few requests, each for many runs and bounded."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from prefect import State, Task
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterIdempotencyKey,
    FlowRunFilterParentFlowRunId,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.states import AwaitingRetry, Cancelled, Cancelling, Crashed, Pending

from flows.names import MOST_ATTEMPTS
from flows.outcome.rows import read_rows
from zoo.errors import MenagerieError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

    from flows.outcome.results import ModelResult

__all__ = ["Phase", "Run", "Runs", "close_children"]

_CHUNK = 100  # runs a question
_PAGE = 200
_REFUSALS = (400, 404, 409, 422)
_PLACEHOLDER_KEY = "menagerie.child"


class Phase(StrEnum):
    """How far a run is."""

    WAITING = "waiting"  # for a worker
    RUNNING = "running"
    COMPLETED = "completed"
    CRASHED = "crashed"  # an automation may still revive it
    ENDED = "ended"  # failed or cancelled

    @property
    def is_final(self) -> bool:
        """Whether nothing more is to come, unless it is revived."""
        return self not in (Phase.WAITING, Phase.RUNNING)


@dataclass(frozen=True)
class Run:
    """A run as the server knows it."""

    id: UUID
    phase: Phase
    state: str  # Prefect's name of it, e.g. Late
    message: str
    parameters: dict[str, Any]
    attempts: int = 0  # how often it began to run

    @property
    def may_be_revived(self) -> bool:
        """Whether it crashed and is to be run again."""
        return self.phase is Phase.CRASHED and 0 < self.attempts < MOST_ATTEMPTS

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to come of it."""
        return self.phase.is_final and not self.may_be_revived


class Runs:
    """The runs that one parent run has on a server.

    Args:
        client: Prefect's.
        parent: the parent run's id.
    """

    def __init__(self, client: SyncPrefectClient, parent: UUID) -> None:
        self._client = client
        self._parent = parent

    def deployments(self, flow: str) -> dict[str, UUID]:
        """The deployments of a flow by work pool: of several in one pool, the first by name."""
        found = self._client.read_deployments(
            flow_filter=FlowFilter(name=FlowFilterName(any_=[flow])), limit=_PAGE
        )
        by_pool: dict[str, UUID] = {}
        for deployment in sorted(found, key=lambda d: d.name):
            if deployment.work_pool_name is not None and not deployment.paused:
                by_pool.setdefault(deployment.work_pool_name, deployment.id)
        return by_pool

    def children(self) -> list[Run]:
        """All runs that this parent submitted, also before it was restarted."""
        wanted = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[self._parent]))
        found: list[FlowRun] = []
        while True:
            page = self._client.read_flow_runs(
                flow_run_filter=wanted, limit=_PAGE, offset=len(found)
            )
            found += page
            if len(page) < _PAGE:
                return [_run(each) for each in found]

    def submit(
        self,
        deployment: UUID,
        parameters: dict[str, Any],
        *,
        name: str,
        tags: Sequence[str],
        key: str,
        linked: bool,
    ) -> Run:
        """Submit a run; the same key never makes a second one.

        Args:
            deployment: of what.
            parameters: JSON.
            name: what the run is called.
            tags: for finding it in the UI.
            key: the run's identity among those of its flow.
            linked: whether it is a child of the parent run, and `key` counts among its children.

        Raises:
            MenagerieError: the server refuses the parameters.
        """
        placeholder = self._placeholder(key, name) if linked else None
        try:
            found = self._client.create_flow_run_from_deployment(
                deployment,
                parameters=parameters,
                name=name,
                tags=list(tags),
                idempotency_key=f"{self._parent}-{key}" if linked else key,
                parent_task_run_id=placeholder,
            )
        except PrefectHTTPStatusError as error:
            if error.response.status_code not in _REFUSALS:
                raise
            fact = f"refuses the run ({' '.join(error.response.text.split())[:300]})"
            raise MenagerieError("Prefect", fact) from error
        return _run(found)

    def known(self, keys: Sequence[str]) -> dict[str, Run]:
        """The runs that were submitted under these keys and are not linked, by key."""
        found = {}
        for start in range(0, len(keys), _CHUNK):
            some = list(keys[start : start + _CHUNK])
            wanted = FlowRunFilter(idempotency_key=FlowRunFilterIdempotencyKey(any_=some))
            for each in self._client.read_flow_runs(flow_run_filter=wanted, limit=_PAGE):
                found[each.idempotency_key or ""] = _run(each)
        return found

    def look(self, ids: Sequence[UUID]) -> dict[UUID, Run]:
        """The runs as they are now; one that was deleted is missing."""
        found = {}
        for start in range(0, len(ids), _CHUNK):
            wanted = FlowRunFilter(id=FlowRunFilterId(any_=list(ids[start : start + _CHUNK])))
            for each in self._client.read_flow_runs(flow_run_filter=wanted, limit=_CHUNK):
                found[each.id] = _run(each)
        return found

    def rows(self, ids: Sequence[UUID]) -> dict[UUID, list[ModelResult]]:
        """The rows that these runs have left."""
        found = {}
        for start in range(0, len(ids), _CHUNK):
            found.update(read_rows(self._client, ids[start : start + _CHUNK]))
        return found

    def cancel(self, run: Run, *, force: bool = False) -> None:
        """End a run: its worker stops it; with `force` it counts as ended at once.

        Where no worker has it, the server makes *Cancelled* of it by itself. Forced on a run that a
        worker has just taken, *Cancelled* would not stop it: it may go on to *Running* from there.
        """
        message = "Given up by its parent run"
        state: State[Any] = Cancelled(message=message) if force else Cancelling(message=message)
        self._client.set_flow_run_state(run.id, state, force=force)

    def run_again(self, run: Run) -> None:
        """Put a crashed run back into the queue, unless somebody did so a moment ago."""
        latest = self.look([run.id]).get(run.id)
        if latest is None or latest.phase is not Phase.CRASHED:
            return
        message = "Crashed; run again by its parent."
        self._client.set_flow_run_state(run.id, AwaitingRetry(message=message), force=True)

    def close_children(self, run: UUID) -> None:
        """End the runs below a run whose process is gone, and theirs with it."""
        close_children(self._client, run)

    def has_worker(self, pool: str) -> bool:
        """Whether a worker of the pool has been heard of lately."""
        try:
            workers = self._client.read_workers_for_work_pool(pool, limit=_PAGE)
        except ObjectNotFound:  # there is not even such a pool
            return False
        return any(worker.status == "ONLINE" for worker in workers)

    def is_being_cancelled(self) -> bool:
        """Whether somebody cancels the parent run itself."""
        state = self._client.read_flow_run(self._parent).state
        return state is not None and state.type in (StateType.CANCELLING, StateType.CANCELLED)

    def _placeholder(self, key: str, name: str) -> UUID:
        """The task run by which Prefect's UI shows one run below another."""
        task = Task(name=name, fn=_nothing)
        task.task_key = _PLACEHOLDER_KEY
        run = self._client.create_task_run(
            task=task, flow_run_id=self._parent, dynamic_key=key, state=Pending()
        )
        return run.id


def close_children(client: SyncPrefectClient, run: UUID) -> None:
    """Have the running children of a run count as crashed: they lived in its process."""
    running = FlowRunFilter(
        parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[run]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.RUNNING])),
    )
    lost: State[Any] = Crashed(message="The process of the run above it was lost")
    for child in client.read_flow_runs(flow_run_filter=running, limit=_PAGE):
        client.set_flow_run_state(child.id, lost, force=True)


def _nothing() -> None:
    """What a placeholder does."""


def _run(found: FlowRun) -> Run:
    state = found.state
    return Run(
        id=found.id,
        phase=_phase(state.type if state is not None else None),
        state=state.name or state.type.value if state is not None else "unknown",
        message=(state.message or "") if state is not None else "",
        parameters=found.parameters,
        attempts=found.run_count,
    )


def _phase(state: StateType | None) -> Phase:
    match state:
        case StateType.COMPLETED:
            return Phase.COMPLETED
        case StateType.CRASHED:
            return Phase.CRASHED
        case StateType.FAILED | StateType.CANCELLED:
            return Phase.ENDED
        case StateType.RUNNING | StateType.CANCELLING:
            return Phase.RUNNING
        case _:
            return Phase.WAITING
