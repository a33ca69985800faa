"""No page is wider than its window, from a phone's to a desk's; only tables and code scroll."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browsers import catalogued, picture

from tests.zoo.report.conftest import diverged, resnet, transducer  # noqa: F401 - fixtures
from zoo.catalogue.site import INDEX, keep_site, kept_site, update_catalogue
from zoo.records import ConversionReport, FailureReport
from zoo.report.page import render_failure, render_index, render_report
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Page

pytestmark = pytest.mark.ui

WIDTHS = (360, 390, 768, 1280)
LONG = "a_model_of_a_family_whose_names_no_line_of_a_phone_can_hold"
WORD = "x" * 300  # that no line can hold, and nothing may break but the page itself
WHEEL = "menagerie-1.0.0-py3-none-manylinux_2_28_x86_64.whl"
# What ends to the right of the window, but for what is in something that scrolls by itself.
BEYOND = """() => [...document.querySelectorAll("body *")].filter((each) => {
  const scrolls = each.parentElement.closest(".scroll, .graph, .log, pre, svg");
  const box = each.getBoundingClientRect();
  return !scrolls && box.width && box.right > document.documentElement.clientWidth + 1;
}).map((each) => each.outerHTML.slice(0, 100))"""


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a site with an address and a wheel, of one model with a long name."""
    folder = tmp_path_factory.mktemp("catalogue")
    with catalogued(folder / "site", (LONG, "ab", 3000), (LONG, "cd", 3000)) as shown:
        (folder / WHEEL).write_bytes(b"a wheel")
        store = open_store(str(shown))
        site = kept_site(store.objects).at("https://models.example/of/a/long/address/of/a/zoo")
        keep_site(store.objects, site, [folder / WHEEL])
        update_catalogue(store)
        yield shown


@pytest.fixture
def pages(
    tmp_path: Path,
    catalogue: Path,
    diverged: ConversionReport,  # noqa: F811 - a fixture
    transducer: ConversionReport,  # noqa: F811 - a fixture
) -> dict[str, Path]:
    """Every kind of page there is, with texts as long as they come."""
    wordy = diverged.model_copy(update={"model": LONG, "summary": WORD, "source": WORD})
    failure = FailureReport(
        model=LONG,
        target="metal",
        outcome="failed",
        stage="lower",
        place=WORD,
        fact=WORD,
        next_step=f"Set {WORD}",
        log=f"{WORD}\n{WORD}",
        log_path=f"/{WORD}",
        build_key="ab" * 32,
        machine=WORD,
    )
    rows = [(wordy, "wordy.html"), (transducer, "transducer.html")]
    texts = {
        "report-failed": render_report(wordy),
        "report": render_report(transducer),
        "failure": render_failure(failure),
        "reports": render_index(rows),
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.html").write_text(text, encoding="utf-8")
    return {
        **{name: tmp_path / f"{name}.html" for name in texts},
        "catalogue": catalogue / INDEX,
        "catalogue-of-model": catalogue / f"catalogue/models/{LONG}.html",
    }


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window(
    plain_page: Page, pages: dict[str, Path], width: int
) -> None:
    """Whatever was written: names, reasons and addresses break, tables and code scroll."""
    plain_page.set_viewport_size({"width": width, "height": 800})
    for name, path in pages.items():
        plain_page.goto(path.as_uri())
        picture(plain_page, f"{name}-{width}")
        assert plain_page.evaluate(BEYOND) == [], name
        assert plain_page.evaluate("document.documentElement.scrollWidth") <= width, name
