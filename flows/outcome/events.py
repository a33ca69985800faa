"""What happened, as one JSON object a line: to the run's log, and to a file that outlives the run.

The file is `logs/events-<month>.jsonl` under Menagerie's home. A line is written at once and by one
call, so that processes on one machine can share the file and a killed one leaves at most half
a line.
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from prefect.exceptions import MissingContextError
from prefect.logging import get_run_logger

from flows.connection import EventKind
from menagerie.figures import shown_json
from menagerie.paths import home
from zoo.base_models import Frozen

if TYPE_CHECKING:
    from flows.outcome.results import ModelResult

_log = logging.getLogger(__name__)


class Event(Frozen):
    """The end of a stage, or of a model's conversion."""

    event: EventKind
    model: str
    target: str
    build_key: str | None
    outcome: str  # of a stage: `done`, else as of a model
    seconds: float
    processor_seconds: float | None = None  # of a stage, with the processes that it started
    stage: str | None = None
    reason: str | None = None
    time: str = ""  # ISO 8601, UTC; filled in when it is recorded


def model_event(row: ModelResult) -> Event:
    """The event that a row stands for."""
    return Event(
        event=EventKind.MODEL,
        model=row.model,
        target=row.target,
        build_key=row.build_key,
        outcome=row.outcome.value,
        seconds=round(row.seconds, 3),
        stage=row.stage,
        reason=row.reason,
    )


def record(event: Event) -> None:
    """Write an event down; where that fails, a warning: nothing depends on it."""
    now = datetime.now(UTC)
    event = event.model_copy(update={"time": now.isoformat(timespec="milliseconds")})
    line = shown_json(event.model_dump_json(exclude_none=True))
    try:
        get_run_logger().info("%s", line)
    except MissingContextError:
        _log.info("%s", line)
    try:
        folder = home() / "logs"
        folder.mkdir(exist_ok=True)
        path = folder / f"events-{now:%Y-%m}.jsonl"
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line.encode() + b"\n")
        finally:
            os.close(descriptor)
    except OSError as error:
        _log.warning("An event could not be written: %s", error)
