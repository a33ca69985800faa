"""Reports of conversions on this machine, reports of failures, and links to them.

Prefect is not imported, because the command line writes failure pages before a server runs.
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
_LOG_BYTES = 64 * 1024  # of a log's end; the page shows some of its lines
_ENDPOINT = "AWS_ENDPOINT_URL_S3"  # not secret; without it, addresses mean AWS
_AUTHORITY = "AWS_CA_BUNDLE"
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


def report_folder(model: str, target: str) -> Path:
    """Return the folder of the last conversion's report of `model` for `target`."""
    return home() / "reports" / model / target


def index_page() -> Path | None:
    """Return the index page of all reports; None if it is missing."""
    page = home() / "reports" / "index.html"
    return page if page.is_file() else None


def known_report(model: str, target: str, build_key: str) -> ConversionReport | None:
    """Return the report of exactly this build, if it was the last conversion here."""
    try:
        report = read_report(report_folder(model, target))
    except ArtifactError:
        return None
    return report if report.build_key == build_key else None


def refresh_index() -> Path | None:
    """Write the index page of the last report of every model and target, and return its path.

    If it cannot be written, return the previous page, if any.
    """
    found = {}
    for document in sorted((home() / "reports").glob("*/*/report.json")):
        with suppress(ArtifactError):  # from another version of Menagerie
            found[document.parent] = read_report(document.parent)
    try:
        return write_index(found, home() / "reports")
    except Exception:  # noqa: BLE001 - the models are published in any case
        _log.warning("The page over all reports could not be written", exc_info=True)
        return index_page()


def conversion_log(model: str, target: str, build_key: str) -> Path:
    """Return the path of the log of a conversion's process; each build has its own."""
    return home() / "logs" / f"{model}-{target}-{build_key[:8]}.log"


def report_failure(
    row: ModelResult, error: MenagerieError | None = None, summary: str = ""
) -> tuple[ModelResult, FailureReport]:
    """Write the page of a failed model; return its row, with the page's path, and its report.

    `error` is the failure, if it is known here; the model's process then wrote its log here too.
    """
    log, said, stage = None, "", str(row.stage or "plan")
    if error is not None and row.build_key and stage != "plan":
        log = conversion_log(row.model, row.target, row.build_key)
        with suppress(OSError), log.open("rb") as file:  # it failed before it had a log
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
    """Return the table of a run that began at `began`; each row has a page, even for a failure."""
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
    """Return the row with its page's address, if it has a page and the store has addresses."""
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
    """Return Markdown on how to get a release, for the end of a page, with a link for a week.

    A candidate cannot be pulled before it is promoted.
    """
    endpoint, in_bucket = os.environ.get(_ENDPOINT), store.url.startswith("s3://")
    words = [f"{_ENDPOINT}={endpoint}"] if endpoint and in_bucket else []
    words += ["zoo", "pull", release.model, "--target", release.target, "--store", store.url]
    # An indented line shows text verbatim; only a line break could end it.
    lines = ["## Get it", "", f"    {' '.join(shlex.join(words).split())}", ""]
    if not in_bucket:
        return "\n".join(lines) + "\n"
    waits, archive = False, None
    with suppress(StoreError):  # the page is then without a link
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
