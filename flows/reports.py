"""The reports of conversions made on this machine, what they say of failures, and links to them.

Prefect is not imported: the command line writes the page of a failure before any server is there.
"""

from __future__ import annotations

import logging
import os
import platform
import shlex
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from menagerie.figures import size
from menagerie.paths import home
from zoo.errors import ArtifactError, MenagerieError, StoreError
from zoo.records import ConversionReport, FailureReport
from zoo.report.files import read_report, write_failure, write_index
from zoo.report.page import log_end
from zoo.store import Release, Store, open_store
from zoo.store.base import LINK_SECONDS

if TYPE_CHECKING:
    from flows.results import ModelResult, RunResult

_log = logging.getLogger(__name__)
_LOG_BYTES = 64 * 1024  # of a log's end, of which the page shows some lines
_ENDPOINT = "AWS_ENDPOINT_URL_S3"  # no secret; without it the address means AWS
_AUTHORITY = "AWS_CA_BUNDLE"
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


def report_folder(model: str, target: str) -> Path:
    """Return the folder of the last conversion's report of `model` for `target`."""
    return home() / "reports" / model / target


def index_page() -> Path | None:
    """Return the page over all reports, if there is one."""
    page = home() / "reports" / "index.html"
    return page if page.is_file() else None


def known_report(model: str, target: str, build_key: str) -> ConversionReport | None:
    """Return the report of this very build, if it was converted here last."""
    try:
        report = read_report(report_folder(model, target))
    except ArtifactError:
        return None
    return report if report.build_key == build_key else None


def refresh_index() -> Path | None:
    """Write the page over the last report of every model and target, and return it.

    Where it cannot be written, return the one that was there before, if any.
    """
    found = {}
    for document in sorted((home() / "reports").glob("*/*/report.json")):
        with suppress(ArtifactError):  # of another version of Menagerie
            found[document.parent] = read_report(document.parent)
    try:
        return write_index(found, home() / "reports")
    except Exception:  # noqa: BLE001 - whatever it is, the models are published
        _log.warning("The page over all reports could not be written", exc_info=True)
        return index_page()


def conversion_log(model: str, target: str, build_key: str) -> Path:
    """Return the log of a conversion's process; each build of a model has its own."""
    return home() / "logs" / f"{model}-{target}-{build_key[:8]}.log"


def report_failure(
    row: ModelResult, error: MenagerieError | None = None, summary: str = ""
) -> tuple[ModelResult, FailureReport]:
    """Write the page of a model that failed; return its row with the path, and its text.

    `error` says why, where that is known here; a model's process then wrote its log here as well.
    """
    log, said, stage = None, "", str(row.stage or "plan")
    if error is not None and row.build_key and stage != "plan":
        log = conversion_log(row.model, row.target, row.build_key)
        with suppress(OSError), log.open("rb") as file:  # it failed before there was one
            file.seek(max(0, log.stat().st_size - _LOG_BYTES))
            said = log_end(file.read().decode(errors="replace"))
    same = {"model", "target", "outcome", "build_key", "random_weights", "stages"}
    error = error or MenagerieError(row.model, row.reason or "no reason was given")
    report = FailureReport(
        **row.model_dump(include=same),
        stage=stage,
        place=error.place,
        fact=error.fact,
        next_step=error.next_step,
        summary=summary,
        log=said,
        log_path=str(log) if said else "",
        machine=platform.node(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    page = row.report
    try:
        page = str(write_failure(report, report_folder(row.model, row.target)))
    except MenagerieError as unwritten:
        _log.warning("The page of a failure could not be written: %s", unwritten)
    return row.model_copy(update={"report": page}), report


def table_of(
    rows: Iterable[ModelResult], store: str, index: Path | None, began: float
) -> RunResult:
    """Make the table of a run that `began` then; each row has a page, also of a failure."""
    from flows.results import RunResult

    def with_page(row: ModelResult) -> ModelResult:
        if row.succeeded or row.report is not None:
            return row
        return link_report(report_failure(row)[0], open_store(store))

    return RunResult(
        results=tuple(map(with_page, rows)),
        store=store,
        report=None if index is None else str(index),
        seconds=time.perf_counter() - began,
    )


def link_report(row: ModelResult, store: Store) -> ModelResult:
    """Return the row with its page's address, if there is a page and the store has addresses."""
    if row.report is None or not store.url.startswith("s3://"):
        return row
    try:
        page = Path(row.report).read_bytes()
        address = store.link_page(page, f"{row.model}-{row.target}-report")
    except (MenagerieError, OSError) as error:
        _log.warning("The report of %s for %s cannot be linked: %s", row.model, row.target, error)
        return row
    return row.model_copy(update={"page": address})


def how_to_get(store: Store, release: Release) -> str:
    """Say how to get a release, as Markdown for the end of a page, with a link good for a week.

    Nothing takes a candidate before it is promoted.
    """
    endpoint, in_bucket = os.environ.get(_ENDPOINT), store.url.startswith("s3://")
    words = [f"{_ENDPOINT}={endpoint}"] if endpoint and in_bucket else []
    words += ["zoo", "pull", release.model, "--target", release.target, "--store", store.url]
    # An indented line shows all as it is; a line break is the one thing that could end it.
    lines = ["## Get it", "", f"    {' '.join(shlex.join(words).split())}", ""]
    if not in_bucket:
        return "\n".join(lines) + "\n"
    waits, archive = False, None
    with suppress(StoreError):  # then the page does without
        waits = store.candidate(*release.names) == release
        archive = store.link_archive(release)
    if waits:
        note = "It waits for its promotion (`zoo release promote`): before, nothing takes it"
        lines += [f"{note}, and of what is promoted later no zip file is linked here.", ""]
    keys = f"{' and '.join(f'`{name}`' for name in _KEYS)} name a key that may read the store"
    if os.environ.get(_AUTHORITY):
        keys += f", and `{_AUTHORITY}` the certificate of its authority"
    lines += [f"{keys}. On the machine of `zoo cluster up` they are found by themselves.", ""]
    if archive is not None:
        until = datetime.now(UTC) + timedelta(seconds=LINK_SECONDS)
        shown = f"until {until:%Y-%m-%d %H:%M} UTC; anyone who has the address can read it"
        lines += [f"Or [as one zip file]({archive}) ({size(release.size)}), {shown}.", ""]
    return "\n".join(lines) + "\n"
