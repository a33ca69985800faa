"""The page that every failure has: stage, node, reason, what to do, and the end of the log."""

from __future__ import annotations

import logging
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from flows.outcome.links import link_page
from flows.outcome.reports import report_folder
from menagerie.paths import home
from zoo.errors import MenagerieError
from zoo.records import FailureReport
from zoo.report import log_end, write_failure

if TYPE_CHECKING:
    from flows.outcome.results import ModelResult

_log = logging.getLogger(__name__)

_LOG_BYTES = 64 * 1024  # of a log's end, of which the page shows some lines


def conversion_log(model: str, target: str, build_key: str) -> Path:
    """What the process of a conversion says; of two builds of one model each has its own."""
    return home() / "logs" / f"{model}-{target}-{build_key[:8]}.log"


def failure_report(
    row: ModelResult, error: MenagerieError | None = None, summary: str = ""
) -> FailureReport:
    """What is known of a failure.

    Args:
        row: of the model that failed.
        error: why, where that is known here; its model's process then wrote its log here as well.
        summary: of the model.
    """
    log, said = None, ""
    if error is not None and row.build_key:
        log = conversion_log(row.model, row.target, row.build_key)
        said = _end_of(log)
    return FailureReport(
        model=row.model,
        target=row.target,
        outcome=row.outcome.value,
        stage=str(row.stage or "plan"),
        place=error.place if error is not None else row.model,
        fact=error.fact if error is not None else row.reason or "no reason was given",
        next_step=error.next_step if error is not None else "",
        summary=summary,
        build_key=row.build_key,
        random_weights=row.random_weights,
        stages=row.stages,
        log=said,
        log_path=str(log) if said else "",
        machine=platform.node(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def with_failure_page(row: ModelResult, report: FailureReport) -> ModelResult:
    """The row with the path of its page, which is written; where it cannot be, a warning."""
    try:
        page = write_failure(report, report_folder(row.model, row.target))
    except MenagerieError as error:
        _log.warning("The page of a failure could not be written: %s", error)
        return row
    return row.model_copy(update={"report": str(page)})


def link_report(row: ModelResult, store: str) -> ModelResult:
    """The row with an address of its page, if it has one here and the store gives addresses."""
    if row.report is None:
        return row
    name = f"{row.model}-{row.target}-report"
    try:
        address = link_page(store, Path(row.report).read_bytes(), name)
    except (MenagerieError, OSError) as error:
        _log.warning("The report of %s for %s cannot be linked: %s", row.model, row.target, error)
        return row
    return row.model_copy(update={"page": address})


def _end_of(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_BYTES))
            return log_end(file.read().decode(errors="replace"))
    except OSError:  # it failed before there was one
        return ""
