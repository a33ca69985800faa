"""Pages on a Prefect run. What they show is done already, so failing to show it undoes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefect.artifacts import create_link_artifact, create_markdown_artifact
from prefect.logging import get_run_logger

if TYPE_CHECKING:
    from collections.abc import Callable


def leave_artifact(name: str, description: str, write: Callable[[], str]) -> None:
    """Leave a Markdown page on the current run; where that fails, a warning in the run's log.

    Args:
        name: what the page is called from run to run; underscores become hyphens.
        description: one line above the page.
        write: makes the page.
    """
    try:
        create_markdown_artifact(write(), key=name.replace("_", "-"), description=description)
    except Exception:  # noqa: BLE001 - whatever it is, the model is published
        get_run_logger().warning("The page %s could not be left", name, exc_info=True)


def leave_link(name: str, description: str, text: str, address: str) -> None:
    """Leave a link on the current run; where that fails, a warning in the run's log.

    Args:
        name: what the link is called from run to run; underscores become hyphens.
        description: one line above it.
        text: what is clicked.
        address: where it leads.
    """
    try:
        key = name.replace("_", "-")
        create_link_artifact(address, link_text=text, key=key, description=description)
    except Exception:  # noqa: BLE001 - whatever it is, the model is published
        get_run_logger().warning("The link %s could not be left", name, exc_info=True)
