"""The catalogue in a browser, from a folder: search, keyboard, no script, and an audit by axe."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from axe_playwright_python.sync_playwright import Axe
from browsers import picture
from bundle_maker import make_bundle
from playwright.sync_api import expect

from zoo.catalogue.site import INDEX
from zoo.signing.keyring import Keyring
from zoo.signing.promotion import Promoter
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.ui

MODELS = ("alpha_net", "beta_net", "gamma_speech")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A store with two releases of each of three models; the address of its catalogue."""
    folder = tmp_path_factory.mktemp("catalogue")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MENAGERIE_HOME", str(folder / "home"))
        store = open_store(str(folder / "store"))
        promoter = Promoter(store, Keyring.create(folder / "home" / "keys"))
        for number, model in enumerate(MODELS):
            for release in (1, 2):
                digits = f"{number}{release}"
                files = {"programs/main/model.so": bytes(1000 * release * (3 - number))}
                made = make_bundle(folder / digits, files, build_key=digits * 32, model=model)
                promoter.promote(store.propose(made))
        yield (folder / "store" / INDEX).as_uri()


@pytest.fixture(params=["light", "dark"])
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """An empty page in either colour scheme."""
    context = browser.new_context(color_scheme=request.param)
    yield context.new_page()
    context.close()


def test_no_barrier_is_found(page: Page, index: str) -> None:
    """Neither on the list nor on a model's page, by the rules of WCAG that axe knows."""
    page.goto(index)
    picture(page, "catalogue")
    assert not Axe().run(page).response["violations"]
    page.get_by_role("link", name="alpha_net").click()
    picture(page, "catalogue-model")
    assert not Axe().run(page).response["violations"]


def test_searching_narrows_the_list(page: Page, index: str) -> None:
    """Words and target together, told to those who cannot see it too."""
    page.goto(index)
    expect(page.locator("#told")).to_have_text("3 of 3 artifacts")
    page.get_by_label("Search").fill("net beta")
    expect(page.get_by_role("row").filter(visible=True)).to_have_count(2)  # the head is one
    expect(page.locator("#told")).to_have_text("1 of 3 artifacts")
    page.get_by_label("Target").select_option("cpu")
    expect(page.get_by_role("link", name="beta_net")).to_be_visible()


def test_a_column_sorts_the_list(page: Page, index: str) -> None:
    """Up, then down; what has no figure stays where it is; what was searched for stays found."""
    page.goto(index)
    names = page.locator("tbody th a")
    page.get_by_role("button", name="size").click()
    expect(names).to_have_text(["gamma_speech", "beta_net", "alpha_net"])
    expect(page.get_by_role("columnheader", name="size")).to_have_attribute(
        "aria-sort", "ascending"
    )
    page.get_by_role("button", name="size").click()
    expect(names).to_have_text([*MODELS])
    page.get_by_role("button", name="model").click()
    page.get_by_role("button", name="model").click()
    expect(names).to_have_text([*reversed(MODELS)])
    page.get_by_role("button", name="accuracy").click()
    expect(names).to_have_text([*reversed(MODELS)])
    page.get_by_label("Search").fill("net")
    page.get_by_role("button", name="size").click()
    expect(page.get_by_role("row").filter(visible=True)).to_have_count(3)


def test_the_keyboard_is_enough(page: Page, index: str) -> None:
    """From the search field to a model's page and back, without a mouse."""
    page.goto(index)
    page.get_by_label("Search").focus()
    page.keyboard.type("gamma")
    page.get_by_role("link", name="gamma_speech").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("gamma_speech")
    page.get_by_role("link", name="catalogue").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("row")).to_have_count(len(MODELS) + 1)


def test_it_reads_without_scripts(browser: Browser, index: str) -> None:
    """Every row is there, and what would search is not."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(index)
    expect(page.get_by_role("row")).to_have_count(len(MODELS) + 1)
    expect(page.get_by_label("Search")).to_be_hidden()
    context.close()
