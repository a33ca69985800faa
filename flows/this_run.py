"""The current run: its declaration, name, tags, log, rows and final state."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

import httpx
from prefect import Flow, State, flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactCreate
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext
from prefect.exceptions import Abort, MissingContextError
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Failed

from flows.results import ModelResult
from zoo.errors import MenagerieError

P = ParamSpec("P")
R = TypeVar("R")
_PATIENCE_SECONDS = 600.0  # without a connection; the run may have moved by then
_LOOK_SECONDS = 5.0
ROW_TYPE = "result"  # Prefect's UI lists no artifacts of this type as pages
_SCHEDULERS_TAG = "auto-scheduled"  # Prefect's tag of scheduled runs


def run_log() -> logging.Logger | logging.LoggerAdapter[logging.Logger]:
    """Return the log of the current run; outside of a run, this module's."""
    try:
        return get_run_logger()
    except MissingContextError:
        return logging.getLogger(__name__)


@contextmanager
def or_warned(warning: str) -> Iterator[None]:
    """Log any failure of Prefect's API as a warning, because the work is done regardless."""
    try:
        yield
    except Exception:  # noqa: BLE001 - it can fail in any way
        run_log().warning(warning, exc_info=True)


def abort_if_superseded() -> None:
    """Return if this process owns its run, or if the server stays silent for too long.

    Raise Abort if the run was restarted since; Prefect then ends the process without a report to
    the server.
    """
    run = flow_run.get_id()
    if run is None:
        return
    if (_begun(run) or 0) > (flow_run.get_run_count() or 0):
        get_run_logger().warning("Another process has begun this run again: this one gives way")
        raise Abort("the run was begun again elsewhere")


def _begun(run: str) -> int | None:
    """Return how often the server started a run; None without an answer."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end:
        try:
            with get_client(sync_client=True) as client:
                return client.read_flow_run(UUID(run)).run_count
        except httpx.TransportError:
            time.sleep(_LOOK_SECONDS)
        except Exception:  # noqa: BLE001 - whatever fails, the state has the run's outcome
            return None
    return None


def our_flow(
    said: str | Callable[[Mapping[str, Any]], str],
) -> Callable[[Callable[P, R]], Flow[P, R]]:
    """Declare a flow, which Prefect names like its function, with hyphens.

    A run's name describes its work, whatever started it: `said` derives it from the parameters, as
    a template for `str.format` or a function. Results are not persisted, because products go to our
    own store, by content. What Prefect still writes, an exception raised by a flow, is JSON instead
    of its default, a pickle.
    """
    name = said if isinstance(said, str) else lambda: said(flow_run.get_parameters())
    return flow(flow_run_name=name, persist_result=False, result_serializer="json")


def first_of(names: Sequence[str]) -> str:
    """Return the first name and the number of others, e.g. `resnet18 and 3 more`."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{more}" if names else ""


class Trigger(StrEnum):
    """What started a run, as its tag has it."""

    SCHEDULE = "scheduled"
    CONVERT_ZOO = "by convert-zoo"
    DEPLOYMENT = "on demand"  # by the UI or the API
    COMMAND = "command line"


def tag_run(names: Iterable[str]) -> None:
    """Tag the current run with each model and target, and with what started it.

    So every run can be found by the same tags; a user's own tags stay. Log a warning if the server
    does not accept them.
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
    """A filter that keeps states and tracebacks of our own errors out of runs' logs.

    A run's page shows its state, and our errors have place, fact and next step.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, MenagerieError):
            record.msg, record.args, record.exc_info = "%s", (error,), None
        return not record.getMessage().startswith("Finished in state")


for _logger in ("prefect.flow_runs", "prefect.task_runs"):  # Prefect's engine
    logging.getLogger(_logger).addFilter(_Sentences())


class RunFailed(MenagerieError):
    """A run that did not succeed in everything; `result` is nevertheless complete."""

    def __init__(self, place: str, fact: str, result: object) -> None:
        super().__init__(place, fact, "Its row and its report say more")
        self.result = result


def failed(message: str, result: object) -> State[Any]:
    """Return the final state of a failed run, with its result.

    It is returned because Prefect writes what a flow raises to its storage. The data is an
    exception, because Prefect accepts nothing else from a failed run. Raise Abort if another
    process has restarted the run and reports for it.
    """
    abort_if_superseded()
    return Failed(message=message, data=RunFailed(str(flow_run.get_name()), message, result))


def this_run() -> UUID:
    """Return the id of the current flow run."""
    return UUID(str(flow_run.get_id()))


def leave_row(row: ModelResult, run: UUID) -> None:
    """Leave a row on a run; log a warning on failure, because nothing else depends on it."""
    artifact = ArtifactCreate(
        type=ROW_TYPE,
        description=f"{row.model} for {row.target}: {row.outcome}",
        data=row.model_dump_json(),
        flow_run_id=run,
    )
    warning = f"The row of {row.model} for {row.target} could not be left"
    with or_warned(warning), get_client(sync_client=True) as client:
        client.create_artifact(artifact)
