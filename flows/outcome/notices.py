"""Events of which somebody wants to hear: an automation of the server's makes messages of them.

One for each run, with its table and links, whatever went wrong in it. Nothing is sent from here:
who hears of it, and how, is set in one file, see `infra.notifications`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from prefect.events import emit_event
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.settings import PREFECT_UI_URL

from flows.outcome.results import Step, results_markdown
from transforms.stages import Stage

if TYPE_CHECKING:
    from flows.outcome.results import RunResult

_MOST_CHARACTERS = 60_000  # of a message; a server refuses larger events


class Notice(StrEnum):
    """What somebody may want to hear of, by the event's name on the server."""

    FAILURES = "menagerie.run.failed"
    REFUTED = "menagerie.release.refuted"
    REBUILT = "menagerie.release.rebuilt-otherwise"
    STORE = "menagerie.store.unusable"


def tell_of_failures(run: RunResult) -> None:
    """Of a run of which models failed: how many, why, the table, and where to read on."""
    failed = [row for row in run.results if not row.succeeded]
    text = results_markdown(failed)
    rest = len(run.results) - len(failed)
    if rest:
        text += f"\n{rest} more without a fault.\n"
    stored = [row for row in failed if row.stage is Stage.PUBLISH]
    if stored:
        text = f"The store takes nothing: {stored[0].reason}\n\n{text}"
    kind = Notice.STORE if stored and len(stored) == len(failed) else Notice.FAILURES
    unplanned = all(row.stage is Step.PLAN for row in failed)
    subject = f"{flow_run.get_name()}: {run.summary}" + (", nothing was begun" if unplanned else "")
    tell(kind, subject, text)


def tell(notice: Notice, subject: str, body: str) -> None:
    """Have the server know; where that fails, a warning in the run's log.

    Args:
        notice: of what kind it is.
        subject: one line.
        body: Markdown.
    """
    where = PREFECT_UI_URL.value()
    run = flow_run.get_id()
    link = f"\n{where}/runs/flow-run/{run}\n" if where else ""
    text = body[: _MOST_CHARACTERS - len(link)]
    try:
        emit_event(
            event=notice.value,
            resource={
                "prefect.resource.id": f"menagerie.run.{run}",
                "prefect.resource.name": str(flow_run.get_name()),
            },
            payload={"subject": " ".join(subject.split()), "body": text + link},
        )
    except Exception:  # noqa: BLE001 - whatever it is, the run is as it is
        get_run_logger().warning("Nobody could be told: %s", subject, exc_info=True)
