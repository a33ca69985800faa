"""Pages of a run, links to them, and lines in its log.

Every conversion has a report page, whatever its outcome. A release holds its own page. The page of
a failure, or of a build that was proven again while the store keeps its release, is stored
separately, so that the run's page and the linked page agree.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast
from uuid import UUID

from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    update_progress_artifact,
)

from flows.reports import how_to_get, link_report, report_failure
from flows.results import ModelResult, Outcome
from flows.services import services
from flows.this_run import leave_row, or_warned, run_log, this_run
from menagerie.figures import seconds, shown_json
from menagerie.paths import home
from zoo.errors import MenagerieError
from zoo.records import ConversionReport
from zoo.report.page import failure_markdown, markdown, plain_text
from zoo.store import Release, Store
from zoo.store.base import LINK_DAYS

_LONG_SECONDS = 15.0  # longer conversions get a bar
_PAUSE_SECONDS = 2.0  # between updates, each a request
_PROVEN_ANEW = """\
> **Proven anew.** This page is of this run. The store keeps its release of {}, with the \
report of its own proof: that is what is got below.
"""


def leave_artifact(name: str, description: str, write: Callable[[], str]) -> None:
    """Leave a Markdown page on the current run, or a warning in the run's log if that fails.

    `name` is the same in every run; its underscores become hyphens. `description` is one line above
    the page, which `write` returns.
    """
    with or_warned(f"The page {name} could not be left"):
        create_markdown_artifact(write(), key=name.replace("_", "-"), description=description)


class ProgressBar:
    """A progress bar on the run of a long conversion; a short one gets none.

    `name` is the same in every run; its underscores become hyphens. `parts` is the number of parts
    of the whole.
    """

    def __init__(self, name: str, parts: int) -> None:
        self._name = name.replace("_", "-")
        self._parts = parts
        self._next = time.monotonic() + _LONG_SECONDS
        self._bar: UUID | None = None
        self._whole = 0

    def show(self, done: float, now: str) -> None:
        """Move the bar to `done` parts and show the current step; log a warning on failure."""
        another = self._bar is not None and int(done) > self._whole  # a stage began, or all ended
        if time.monotonic() < self._next and not another:
            return
        self._next = time.monotonic() + _PAUSE_SECONDS
        self._whole = int(done)
        description = f"{plain_text(now)}: {int(done)} of {self._parts} stages done"
        percent = round(100 * done / self._parts)  # rounded, because the page shows all digits
        with or_warned("The progress bar could not be moved"):
            if self._bar is None:
                made = create_progress_artifact(percent, key=self._name, description=description)
                self._bar = cast("UUID", made)  # in an asyncio loop it would be a coroutine
            else:
                update_progress_artifact(self._bar, progress=percent, description=description)


@dataclass(frozen=True)
class Ended:
    """The end of a conversion: its row, its report if there is a verdict, its failure."""

    row: ModelResult
    report: ConversionReport | None = None
    error: MenagerieError | None = None


def leave_pages(ended: Ended, store: Store | None, summary: str = "") -> ModelResult:
    """Leave the report on the current run, with download commands and a link to the full page.

    Log a warning if that fails, because the model is already done. Without a store nothing is
    linked. Return the row, with the page's path.
    """
    row, parts = ended.row, []
    release = None if store is None else _stored(row, store)
    if ended.report is not None:
        if row.kept is not None:
            parts.append(_PROVEN_ANEW.format(plain_text(row.kept)))
        parts.append(markdown(ended.report))
    elif not row.succeeded:
        row, failure = report_failure(row, ended.error, summary)
        parts.append(failure_markdown(failure))
    if store and release:
        parts.append(how_to_get(store, release))
    if store and release and row.outcome is not Outcome.PROVEN:
        there = "report.html" in release.manifest.listed
        page = store.link(release, "report.html") if there else None
        row = row.model_copy(update={"page": page})
    elif store and parts:
        row = link_report(row, store)
    name = f"{row.model}-{row.target}"
    if parts:
        title = f"{row.model} for {row.target}: {row.outcome}"
        leave_artifact(name, title, lambda: "\n".join(parts))
    if row.page is not None:
        with or_warned(f"The link {name}-report could not be left"):
            create_link_artifact(
                row.page,
                link_text=f"Report of {row.model} for {row.target}",
                key=f"{name}-report".replace("_", "-"),
                description=f"The page in full, for {LINK_DAYS} days",
            )
    return row


def _stored(row: ModelResult, store: Store) -> Release | None:
    if row.build_key is None or not row.succeeded or row.retracted is not None:
        return None
    try:
        return store.find_any(row.model, row.target, row.build_key)
    except MenagerieError as error:
        run_log().warning("The release cannot be linked: %s", error)
        return None


def record(row: ModelResult) -> None:
    """Record how a model ended: a sentence in the run's log, and a line of JSON in a file.

    Log a warning if that fails, because nothing depends on it.
    """
    sentence = f"{row.model} for {row.target}: {row.outcome} in {seconds(row.seconds)}"
    if row.stage is not None:
        took = f"after {seconds(row.seconds)} in {row.stage}"
        sentence = f"{row.model} for {row.target}: {row.outcome} {took} ({row.reason})"
    run_log().info("%s", sentence)
    now = datetime.now(UTC)
    facts = row.model_dump(mode="json", exclude_none=True, exclude={"diagnosis", "page"})
    line = shown_json({"time": now.isoformat(timespec="milliseconds"), **facts})
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
        run_log().warning("The end of a model could not be written down: %s", error)


def tell(row: ModelResult) -> None:
    """Report a row to the listener, and leave it on the current run if that keeps rows."""
    given = services()
    given.listener.model_ended(row)
    if given.leaves_rows:
        leave_row(row, this_run())
