"""What the tests in a browser share."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bundle_maker import make_bundle

from zoo.signing.keyring import Keyring
from zoo.signing.promotion import Promoter
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

PAGE_SECONDS = 120


def picture(page: Page, name: str) -> None:
    """Keep what is on the page, in the folder that MENAGERIE_PICTURES names if it names one."""
    if folder := os.environ.get("MENAGERIE_PICTURES"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


@contextmanager
def catalogued(folder: Path, *bundles: tuple[str, str, int]) -> Iterator[Path]:
    """A store of promoted releases, each by model, digits of its build key and a library's bytes.

    In the block, its keys are this user's.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MENAGERIE_HOME", str(folder / "home"))
        store = open_store(str(folder / "store"))
        promoter = Promoter(store, Keyring.create(folder / "home" / "keys"))
        for model, digits, size in bundles:
            files = {"programs/main/model.so": bytes(size)}
            made = make_bundle(folder / digits, files, build_key=digits * 32, model=model)
            promoter.promote(store.propose(made))
        yield folder / "store"
