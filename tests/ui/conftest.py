"""Chromium: the one that `playwright install chromium` fetched, or the system's."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Error, expect, sync_playwright

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "runtime" / "format"))
sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))

from browsers import PAGE_SECONDS
from owner import Cluster, signed_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser without any page."""
    expect.set_options(timeout=PAGE_SECONDS * 1000)
    with sync_playwright() as playwright:
        try:
            opened = playwright.chromium.launch()
        except Error:  # none of Playwright's own
            opened = playwright.chromium.launch(
                executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
                args=["--no-sandbox"],
            )
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    """What the owner of the module's cluster has set; a module may have a fixture of its own."""
    return {}


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, settings: dict[str, str]
) -> Iterator[Cluster]:
    """A cluster of the module's own."""
    made = Cluster(tmp_path_factory.mktemp("home"), **settings)
    try:
        yield made
    finally:
        made.zoo("down")


@pytest.fixture(scope="module")
def page(cluster: Cluster, browser: Browser) -> Iterator[Page]:
    """The owner's browser, signed in."""
    with signed_in(cluster, browser) as opened:
        yield opened


@pytest.fixture(params=["light", "dark"])
def plain_page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """An empty page in either colour scheme."""
    context = browser.new_context(color_scheme=request.param)
    yield context.new_page()
    context.close()
