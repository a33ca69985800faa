"""Rows of the table as they travel from a run on a worker to the run that waits for it.

A row is an artifact on the run: small JSON in the server's database, there as soon as its model is
done, whatever becomes of the run, and without the pickles that Prefect's results are by default.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactCreate
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    ArtifactFilterType,
)
from prefect.logging import get_logger
from prefect.runtime import flow_run
from pydantic import ValidationError

from flows.outcome.results import ModelResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefect.client.orchestration import SyncPrefectClient

__all__ = ["leave_row", "read_rows", "rows_left_before", "this_run"]

ROW_TYPE = "result"  # Prefect's UI shows artifacts of this type in no list of pages
_PAGE = 200  # the most that Prefect gives at once


def this_run() -> UUID:
    """The flow run that is executed here and now."""
    return UUID(str(flow_run.get_id()))


def leave_row(row: ModelResult, run: UUID) -> None:
    """Leave a row on a run; where that fails, a warning: nothing else depends on it."""
    artifact = ArtifactCreate(
        type=ROW_TYPE,
        description=f"{row.model} for {row.target}: {row.outcome}",
        data=row.model_dump_json(),
        flow_run_id=run,
    )
    try:
        with get_client(sync_client=True) as client:
            client.create_artifact(artifact)
    except Exception:  # noqa: BLE001 - Prefect's API can fail in any way
        get_logger(__name__).warning(
            "The row of %s for %s could not be left", row.model, row.target, exc_info=True
        )


def rows_left_before() -> list[ModelResult]:
    """The rows that this run left before it crashed and was run again by itself.

    None where somebody has it run again after it failed: they want another try of what failed.
    """
    if (flow_run.run_count or 1) <= 1:
        return []
    run = this_run()
    with get_client(sync_client=True) as client:
        states = sorted(client.read_flow_run_states(run), key=lambda state: state.timestamp)
        ends = [state for state in states if state.is_final()]
        if not ends or not ends[-1].is_crashed():
            return []
        return read_rows(client, [run]).get(run, [])


def read_rows(
    client: SyncPrefectClient, flow_runs: Sequence[UUID]
) -> dict[UUID, list[ModelResult]]:
    """The rows that runs have left so far, by run; unreadable ones are left out."""
    found: dict[UUID, list[ModelResult]] = {}
    wanted = ArtifactFilter(
        flow_run_id=ArtifactFilterFlowRunId(any_=list(flow_runs)),
        type=ArtifactFilterType(any_=[ROW_TYPE]),
    )
    offset = 0
    while True:
        page = client.read_artifacts(artifact_filter=wanted, limit=_PAGE, offset=offset)
        for artifact in page:
            row = _parsed(artifact.data)
            if row is not None and artifact.flow_run_id is not None:
                found.setdefault(artifact.flow_run_id, []).append(row)
        if len(page) < _PAGE:
            return found
        offset += _PAGE


def _parsed(data: object) -> ModelResult | None:
    try:
        return ModelResult.model_validate_json(data if isinstance(data, str) else json.dumps(data))
    except (TypeError, ValidationError):
        return None
