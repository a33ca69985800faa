"""What the tests in a browser share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

PAGE_SECONDS = 120


def picture(page: Page, name: str) -> None:
    """Keep what is on the page, in the folder that MENAGERIE_PICTURES names if it names one."""
    if folder := os.environ.get("MENAGERIE_PICTURES"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
