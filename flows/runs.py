"""Runs on a Prefect server: submission, state, and rows.

Products go to our own store. Only rows are passed between runs: a run's artifact is small JSON in
the server's database, available as soon as its model is done, without the pickles that Prefect
uses for results by default.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, cast
from uuid import UUID, uuid4

from prefect import State, Task
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import ArtifactFilter, FlowFilter, FlowRunFilter
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import TaskRunSort
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.runtime import flow_run
from prefect.states import Cancelled, Cancelling, Pending
from prefect.utilities.urls import url_for
from pydantic import ValidationError

from flows.results import ModelResult
from flows.this_run import ROW_TYPE, this_run
from transforms.stages import Stage
from zoo.errors import MenagerieError

T = TypeVar("T")
_PAGE = 200  # Prefect's maximum per page
_REFUSALS = (400, 404, 409, 422)


def address(run: UUID) -> str:
    """Return the URL of a run in Prefect's UI."""
    return str(url_for("flow-run", obj_id=run))


def rows_left_before() -> list[ModelResult]:
    """Return the rows that this run left before it crashed and was restarted automatically.

    The list is empty if a user restarted a failed run, in order to retry the failures.
    """
    if (flow_run.run_count or 1) <= 1:
        return []
    run = this_run()
    with get_client(sync_client=True) as client:
        states = sorted(client.read_flow_run_states(run), key=lambda state: state.timestamp)
        ends = [state for state in states if state.is_final()]
        if not ends or not ends[-1].is_crashed():
            return []
        return Runs(client, run).rows([run]).get(run, [])


def _all_pages(read: Callable[..., list[T]]) -> Iterator[T]:
    """Yield the items of Prefect's pages; `read` takes `limit` and `offset`."""
    for number in itertools.count():
        page = read(limit=_PAGE, offset=number * _PAGE)
        yield from page
        if len(page) < _PAGE:
            return


class Runs:
    """The child runs of one parent run on a server; without `parent`, independent runs."""

    def __init__(self, client: SyncPrefectClient, parent: UUID | None) -> None:
        self._client = client
        self._parent = parent or uuid4()
        self._alone = parent is None

    def deployments(self, flow: str) -> dict[str, UUID]:
        """Return a flow's deployments by work pool; the first by name if a pool has several."""
        ours = FlowFilter.model_validate({"name": {"any_": [flow]}})
        found = self._client.read_deployments(flow_filter=ours, limit=_PAGE)
        last_first = sorted(found, key=lambda d: d.name, reverse=True)
        return {d.work_pool_name: d.id for d in last_first if d.work_pool_name and not d.paused}

    def children(self) -> list[FlowRun]:
        """Return all runs that this parent submitted, including those before a restart."""
        return list(self._read("parent_flow_run_id", [self._parent]))

    def submit(
        self,
        deployment: UUID,
        parameters: dict[str, Any],
        *,
        name: str,
        tags: Sequence[str],
        key: str,
    ) -> FlowRun:
        """Submit a run, as a child of the parent if there is one; a key never creates two runs.

        Raise MenagerieError if the server refuses the parameters, which are JSON.
        """
        # Prefect's UI nests one run below another by a task run. Prefect's run_deployment numbers
        # task runs per process; the key identifies each child's even after a restart.
        task = Task(name=name, fn=lambda: None)
        task.task_key = "menagerie.child"
        try:
            above = None
            if not self._alone:
                above = self._client.create_task_run(
                    task=task, flow_run_id=self._parent, dynamic_key=key, state=Pending()
                ).id
            return self._client.create_flow_run_from_deployment(
                deployment,
                parameters=parameters,
                name=name,
                tags=list(tags),
                idempotency_key=f"{self._parent}-{key}",
                parent_task_run_id=above,
            )
        except PrefectHTTPStatusError as error:
            if error.response.status_code not in _REFUSALS:
                raise
            fact = f"refuses the run ({' '.join(error.response.text.split())[:300]})"
            raise MenagerieError("Prefect", fact) from error

    def look(self, ids: Sequence[UUID]) -> dict[UUID, FlowRun]:
        """Return the current states of the runs; deleted runs are missing."""
        return {run.id: run for run in self._read("id", ids)}

    def rows(self, ids: Sequence[UUID]) -> dict[UUID, list[ModelResult]]:
        """Return the rows that these runs have left so far, without unreadable ones."""
        found: dict[UUID, list[ModelResult]] = {}
        any_of = {"flow_run_id": {"any_": list(ids)}, "type": {"any_": [ROW_TYPE]}}
        wanted = ArtifactFilter.model_validate(any_of)
        for artifact in _all_pages(partial(self._client.read_artifacts, artifact_filter=wanted)):
            data = artifact.data if isinstance(artifact.data, str) else json.dumps(artifact.data)
            with suppress(ValidationError):
                row = ModelResult.model_validate_json(data)
                found.setdefault(cast("UUID", artifact.flow_run_id), []).append(row)
        return found

    def cancel(self, run: FlowRun, *, force: bool = False) -> None:
        """Cancel a run: its worker stops it; with `force` it counts as ended at once.

        If no worker has taken it, the server itself sets *Cancelled*. Forcing *Cancelled* on a run
        that a worker has just taken would not stop it: it may still go on to *Running*.
        """
        end: State[Any] = (Cancelled if force else Cancelling)(message="Given up by its parent run")
        self._client.set_flow_run_state(run.id, end, force=force)

    def has_worker(self, pool: str) -> bool:
        """Return whether a worker of the pool has sent a recent heartbeat."""
        try:
            workers = self._client.read_workers_for_work_pool(pool, limit=_PAGE)
        except ObjectNotFound:  # the pool does not exist
            return False
        return any(worker.status == "ONLINE" for worker in workers)

    def stages(self, ids: Sequence[UUID]) -> Iterator[tuple[str, str, Stage, float | None]]:
        """Yield model, target, stage and seconds (None while running) of these runs' stages."""
        runs = FlowRunFilter.model_validate({"id": {"any_": list(ids)}})
        read, order = self._client.read_task_runs, TaskRunSort.EXPECTED_START_TIME_ASC
        for task in _all_pages(partial(read, flow_run_filter=runs, sort=order)):
            stage, _, rest = task.name.partition(": ")
            model, _, target = rest.rpartition(" for ")
            if stage in [*Stage] and task.state_type in (StateType.RUNNING, StateType.COMPLETED):
                ended = task.state_type is StateType.COMPLETED
                seconds = task.total_run_time.total_seconds() if ended else None
                yield model, target, Stage(stage), seconds

    def is_being_cancelled(self) -> bool:
        """Return whether the parent run itself is being cancelled."""
        state = self._client.read_flow_run(self._parent).state
        return state is not None and state.type in (StateType.CANCELLING, StateType.CANCELLED)

    def _read(self, field: str, values: Sequence[UUID]) -> Iterator[FlowRun]:
        wanted = FlowRunFilter.model_validate({field: {"any_": list(values)}})
        return _all_pages(partial(self._client.read_flow_runs, flow_run_filter=wanted))
