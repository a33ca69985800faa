"""What a person finds on the run of one model: its report, links to it, how to get the artifact.

Every conversion has a report page, whatever became of it. A release holds its own; that of a
failure, or of a build that was proven anew while the store keeps the release that it has, goes into
the store by itself, so that the run's page and the page behind its link say the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefect.logging import get_run_logger

from flows.outcome.artifacts import leave_artifact, leave_link
from flows.outcome.failures import failure_report, link_report, with_failure_page
from flows.outcome.links import Links, release_links
from flows.outcome.results import ModelResult, Outcome
from zoo.errors import MenagerieError
from zoo.report import failure_markdown, markdown, plain_text
from zoo.store.base import LINK_DAYS

if TYPE_CHECKING:
    from zoo.records import ConversionReport


@dataclass(frozen=True)
class Ended:
    """How a conversion ended.

    Attributes:
        row: for the table.
        report: if it came as far as a verdict.
        error: why it failed.
        summary: of the model, if that could be found out.
    """

    row: ModelResult
    report: ConversionReport | None = None
    error: MenagerieError | None = None
    summary: str = ""


def leave_pages(ended: Ended, store: str) -> ModelResult:
    """Leave the report on the current run, how to get the artifact, and a link to the page in full.

    Where something of it fails, a warning in the run's log: the model is done already.

    Returns:
        The row, which says where the page lies.
    """
    row, parts, links = ended.row, [], None
    if row.succeeded:
        links = _links(row, store)
        if ended.report is not None:
            parts.append(_proven_anew(row) + markdown(ended.report))
    elif ended.report is not None:
        parts.append(markdown(ended.report))
    else:
        failure = failure_report(row, ended.error, ended.summary)
        row = with_failure_page(row, failure)
        parts.append(failure_markdown(failure))
    if links is not None and row.outcome is not Outcome.PROVEN:
        row = row.model_copy(update={"page": links.report})
    elif not row.succeeded or ended.report is not None:
        row = link_report(row, store)
    if links is not None:
        parts.append(links.markdown())
    name = f"{row.model}-{row.target}"
    if parts:
        title = f"{row.model} for {row.target}: {row.outcome}"
        leave_artifact(name, title, lambda: "\n".join(parts))
    if row.page is not None:
        text = f"Report of {row.model} for {row.target}"
        leave_link(f"{name}-report", f"The page in full, for {LINK_DAYS} days", text, row.page)
    return row


def _links(row: ModelResult, store: str) -> Links | None:
    if row.build_key is None:
        return None
    try:
        return release_links(store, row.model, row.target, row.build_key)
    except MenagerieError as error:
        get_run_logger().warning("The release cannot be linked: %s", error)
        return None


def _proven_anew(row: ModelResult) -> str:
    if row.kept is None:
        return ""
    return (
        "> **Proven anew.** What stands here is of this run. The store keeps its release of "
        f"{plain_text(row.kept)}, whose files are those below, with the report of its own proof."
        "\n\n"
    )
