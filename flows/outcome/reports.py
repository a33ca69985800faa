"""Where the reports of conversions made on this machine lie, and the page over all of them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from menagerie.paths import home
from zoo.errors import ArtifactError
from zoo.report import read_report, write_index

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from zoo.records import ConversionReport

_log = logging.getLogger(__name__)


def report_folder(model: str, target: str) -> Path:
    """Where the report of the last conversion of `model` for `target` lies, if there was one."""
    return home() / "reports" / model / target


def index_page() -> Path | None:
    """The page over all reports, if there is one."""
    page = home() / "reports" / "index.html"
    return page if page.is_file() else None


def known_report(model: str, target: str, build_key: str) -> ConversionReport | None:
    """The report of this very build, if it was converted here last."""
    try:
        report = read_report(report_folder(model, target))
    except ArtifactError:
        return None
    return report if report.build_key == build_key else None


def refresh_index() -> Path | None:
    """Write the page over the last report of every model and target.

    Returns:
        The page; where it cannot be written, the one that was there before, if any.
    """
    found = dict(_all_reports())
    pages = {report.build_key: folder / "report.html" for folder, report in found.items()}
    try:
        return write_index(list(found.values()), home() / "reports", pages=pages)
    except Exception:  # noqa: BLE001 - whatever it is, the models are published
        _log.warning("The page over all reports could not be written", exc_info=True)
        return index_page()


def _all_reports() -> Iterator[tuple[Path, ConversionReport]]:
    for document in sorted((home() / "reports").glob("*/*/report.json")):
        try:
            yield document.parent, read_report(document.parent)
        except ArtifactError:
            continue  # of another version of Menagerie
