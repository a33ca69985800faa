"""The catalogue in a browser, from a folder: search, keyboard, no script, and an audit by axe."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from axe_playwright_python.sync_playwright import Axe
from browsers import catalogued, picture
from playwright.sync_api import expect

from zoo.catalogue.site import INDEX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.ui

MODELS = ("alpha_net", "beta_net", "gamma_speech")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A store with two releases of each of three models; the address of its catalogue."""
    bundles = [
        (model, f"{number}{release}", 1000 * release * (3 - number))
        for number, model in enumerate(MODELS)
        for release in (1, 2)
    ]
    with catalogued(tmp_path_factory.mktemp("catalogue"), *bundles) as folder:
        yield (folder / INDEX).as_uri()


def test_no_barrier_is_found(plain_page: Page, index: str) -> None:
    """Neither on the list nor on a model's page, by the rules of WCAG that axe knows."""
    plain_page.goto(index)
    picture(plain_page, "catalogue")
    assert not Axe().run(plain_page).response["violations"]
    plain_page.get_by_role("link", name="alpha_net").click()
    picture(plain_page, "catalogue-model")
    assert not Axe().run(plain_page).response["violations"]


def test_searching_narrows_the_list(plain_page: Page, index: str) -> None:
    """By words and target together, and announced to screen readers."""
    plain_page.goto(index)
    expect(plain_page.locator("#shown")).to_have_text("3 of 3 artifacts")
    plain_page.get_by_label("Search").fill("net beta")
    expect(plain_page.get_by_role("row").filter(visible=True)).to_have_count(2)  # the head is one
    expect(plain_page.locator("#shown")).to_have_text("1 of 3 artifacts")
    plain_page.get_by_label("Target").select_option("cpu")
    expect(plain_page.get_by_role("link", name="beta_net")).to_be_visible()


def test_a_column_sorts_the_list(plain_page: Page, index: str) -> None:
    """Up, then down; what has no figure stays where it is; what was searched for stays found."""
    plain_page.goto(index)
    names = plain_page.locator("tbody th a")
    plain_page.get_by_role("button", name="size").click()
    expect(names).to_have_text(["gamma_speech", "beta_net", "alpha_net"])
    expect(plain_page.get_by_role("columnheader", name="size")).to_have_attribute(
        "aria-sort", "ascending"
    )
    plain_page.get_by_role("button", name="size").click()
    expect(names).to_have_text([*MODELS])
    plain_page.get_by_role("button", name="model").click()
    plain_page.get_by_role("button", name="model").click()
    expect(names).to_have_text([*reversed(MODELS)])
    plain_page.get_by_role("button", name="accuracy").click()
    expect(names).to_have_text([*reversed(MODELS)])
    plain_page.get_by_label("Search").fill("net")
    plain_page.get_by_role("button", name="size").click()
    expect(plain_page.get_by_role("row").filter(visible=True)).to_have_count(3)


def test_the_keyboard_is_enough(plain_page: Page, index: str) -> None:
    """From the search field to a model's page and back, without a mouse."""
    plain_page.goto(index)
    plain_page.get_by_label("Search").focus()
    plain_page.keyboard.type("gamma")
    plain_page.get_by_role("link", name="gamma_speech").focus()
    plain_page.keyboard.press("Enter")
    expect(plain_page.get_by_role("heading", level=1)).to_have_text("gamma_speech")
    plain_page.get_by_role("link", name="catalogue").focus()
    plain_page.keyboard.press("Enter")
    expect(plain_page.get_by_role("row")).to_have_count(len(MODELS) + 1)


def test_it_reads_without_scripts(browser: Browser, index: str) -> None:
    """Every row is there, and what would search is not."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(index)
    expect(page.get_by_role("row")).to_have_count(len(MODELS) + 1)
    expect(page.get_by_label("Search")).to_be_hidden()
    context.close()
