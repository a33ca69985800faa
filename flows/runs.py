"""Runs on a Prefect server: how ours are declared, named, asked for, followed and found again.

Products go to our own store. What travels between runs is rows: an artifact of a run is small JSON
in the server's database, there as soon as its model is done, without the pickles that Prefect's
results are by default.
"""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import partial
from typing import Any, ParamSpec, TypeVar, cast
from uuid import UUID, uuid4

import httpx
from prefect import Flow, State, Task, flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate
from prefect.client.schemas.filters import ArtifactFilter, FlowFilter, FlowRunFilter
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import TaskRunSort
from prefect.context import FlowRunContext
from prefect.exceptions import Abort, MissingContextError, ObjectNotFound, PrefectHTTPStatusError
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Cancelled, Cancelling, Failed, Pending
from prefect.utilities.urls import url_for
from pydantic import ValidationError

from flows.results import ModelResult
from transforms.stages import Stage
from zoo.errors import MenagerieError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_PATIENCE_SECONDS = 600.0  # of a line that is down; the run may be elsewhere by then
_LOOK_SECONDS = 5.0
_SCHEDULERS_TAG = "auto-scheduled"  # Prefect's own, of runs that a schedule made
ROW_TYPE = "result"  # Prefect's UI shows artifacts of this type in no list of pages
_PAGE = 200  # the most that Prefect gives at once
_REFUSALS = (400, 404, 409, 422)


def run_log() -> logging.Logger | logging.LoggerAdapter[logging.Logger]:
    """Return the log of the run at work; outside of any, this module's."""
    try:
        return get_run_logger()
    except MissingContextError:
        return logging.getLogger(__name__)


@contextmanager
def or_warned(warning: str) -> Iterator[None]:
    """Make a warning of whatever Prefect's API fails in: the work is done all the same."""
    try:
        yield
    except Exception:  # noqa: BLE001 - it can fail in any way
        run_log().warning(warning, exc_info=True)


def abort_if_superseded() -> None:
    """Go on if this process is the one that has its run, or if the server does not say for long.

    Raise Abort if the run was begun again since; Prefect ends the process without a word to the
    server.
    """
    run = flow_run.get_id()
    if run is None:
        return
    if (_begun(run) or 0) > (flow_run.get_run_count() or 0):
        get_run_logger().warning("Another process has begun this run again: this one gives way")
        raise Abort("the run was begun again elsewhere")


def _begun(run: str) -> int | None:
    """Return how often the server began a run; None without an answer."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end:
        try:
            with get_client(sync_client=True) as client:
                return client.read_flow_run(UUID(run)).run_count
        except httpx.TransportError:
            time.sleep(_LOOK_SECONDS)
        except Exception:  # noqa: BLE001 - whatever it is, the state says what became of the run
            return None
    return None


def our_flow(
    said: str | Callable[[Mapping[str, Any]], str],
) -> Callable[[Callable[P, R]], Flow[P, R]]:
    """Declare a flow, which Prefect calls like its function, with hyphens.

    A run is called what it does, however it began: `said` makes that of its parameters, as a
    template for `str.format` or a function. Nothing of it is kept: products go to our own store, by
    content. What Prefect writes all the same, an exception that a flow raised, is JSON and not its
    default, a pickle.
    """
    name = said if isinstance(said, str) else lambda: said(flow_run.get_parameters())
    return flow(flow_run_name=name, persist_result=False, result_serializer="json")


def first_of(names: Sequence[str]) -> str:
    """Return the first name and the number of others, e.g. `resnet18 and 3 more`."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{more}" if names else ""


class Trigger(StrEnum):
    """What began a run, as its tag says it."""

    SCHEDULE = "scheduled"
    CONVERT_ZOO = "by convert-zoo"
    DEPLOYMENT = "on demand"  # in the UI, or by the API
    COMMAND = "command line"


def tag_run(names: Iterable[str]) -> None:
    """Give the run at work a tag for each model and target, and one for what began it.

    However it began, it is found by the same tags; those that a person gave it stay. Where the
    server does not take them, a warning.
    """
    context = FlowRunContext.get()
    run = context.flow_run if context is not None else None
    if run is None:
        return
    wanted = {*run.tags, *names, _trigger(run)} - {_SCHEDULERS_TAG}
    if wanted == set(run.tags):
        return
    with or_warned("The run could not be tagged"), get_client(sync_client=True) as client:
        client.update_flow_run(run.id, tags=sorted(wanted))


def _trigger(run: FlowRun) -> Trigger:
    if run.created_by is not None and run.created_by.type == "SCHEDULE":
        return Trigger.SCHEDULE
    if run.parent_task_run_id is not None:
        return Trigger.CONVERT_ZOO
    return Trigger.COMMAND if run.deployment_id is None else Trigger.DEPLOYMENT


class _Sentences(logging.Filter):
    """Keeps states and tracebacks of our own errors out of the logs of runs.

    A run's page shows its state, and an error of ours says place, fact and next step.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, MenagerieError):
            record.msg, record.args, record.exc_info = "%s", (error,), None
        return not record.getMessage().startswith("Finished in state")


for _logger in ("prefect.flow_runs", "prefect.task_runs"):  # of Prefect's engine
    logging.getLogger(_logger).addFilter(_Sentences())


class RunFailed(MenagerieError):
    """A run that did not do all it was asked for; `result` is complete all the same."""

    def __init__(self, place: str, fact: str, result: object) -> None:
        super().__init__(place, fact, "Its row and its report say more")
        self.result = result


def failed(message: str, result: object) -> State[Any]:
    """Return the final state of a run that failed, with its result.

    It is returned and not raised: what a flow raises, Prefect writes to its storage. The data is an
    exception, since Prefect takes nothing else for what a failed run has to say. Raise Abort if
    another process has begun the run again, and speaks for it.
    """
    abort_if_superseded()
    return Failed(message=message, data=RunFailed(str(flow_run.get_name()), message, result))


def address(run: UUID) -> str:
    """Return the URL of a run in Prefect's UI."""
    return str(url_for("flow-run", obj_id=run))


def this_run() -> UUID:
    """Return the flow run that is executed here and now."""
    return UUID(str(flow_run.get_id()))


def leave_row(row: ModelResult, run: UUID) -> None:
    """Leave a row on a run; where that fails, a warning: nothing else depends on it."""
    artifact = ArtifactCreate(
        type=ROW_TYPE,
        description=f"{row.model} for {row.target}: {row.outcome}",
        data=row.model_dump_json(),
        flow_run_id=run,
    )
    warning = f"The row of {row.model} for {row.target} could not be left"
    with or_warned(warning), get_client(sync_client=True) as client:
        client.create_artifact(artifact)


def rows_left_before() -> list[ModelResult]:
    """Return the rows that this run left before it crashed and was run again by itself.

    None where a person has it run again after it failed: they want another try of what failed.
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
    """The runs that one parent run has on a server; without `parent`, they stand alone."""

    def __init__(self, client: SyncPrefectClient, parent: UUID | None) -> None:
        self._client = client
        self._parent = parent or uuid4()
        self._alone = parent is None

    def deployments(self, flow: str) -> dict[str, UUID]:
        """Return a flow's deployments by work pool; the first by name where a pool has several."""
        ours = FlowFilter.model_validate({"name": {"any_": [flow]}})
        found = self._client.read_deployments(flow_filter=ours, limit=_PAGE)
        last_first = sorted(found, key=lambda d: d.name, reverse=True)
        return {d.work_pool_name: d.id for d in last_first if d.work_pool_name and not d.paused}

    def children(self) -> list[FlowRun]:
        """Return all runs that this parent submitted, also before it was restarted."""
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
        """Submit a run, below the parent if there is one; the same key never makes a second one.

        Raise MenagerieError if the server refuses the parameters, which are JSON.
        """
        # By a task run Prefect's UI shows one run below another. Its run_deployment numbers them by
        # process; by the key each child has its own, also after a restart.
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
        """Return the runs as they are now; one that was deleted is missing."""
        return {run.id: run for run in self._read("id", ids)}

    def rows(self, ids: Sequence[UUID]) -> dict[UUID, list[ModelResult]]:
        """Return the rows that these runs have left so far; unreadable ones are left out."""
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
        """End a run: its worker stops it; with `force` it counts as ended at once.

        Where no worker has it, the server makes *Cancelled* of it by itself. Forced on a run that a
        worker has just taken, *Cancelled* would not stop it: it may go on to *Running* from there.
        """
        end: State[Any] = (Cancelled if force else Cancelling)(message="Given up by its parent run")
        self._client.set_flow_run_state(run.id, end, force=force)

    def has_worker(self, pool: str) -> bool:
        """Return whether a worker of the pool has been heard of lately."""
        try:
            workers = self._client.read_workers_for_work_pool(pool, limit=_PAGE)
        except ObjectNotFound:  # there is not even such a pool
            return False
        return any(worker.status == "ONLINE" for worker in workers)

    def stages(self, ids: Sequence[UUID]) -> Iterator[tuple[str, str, Stage, float | None]]:
        """Yield model, target, stage and seconds of stages of these runs; None while it runs."""
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
