"""A store with one release, and a web server that shows it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "servers"))
sys.path.insert(0, str(Path(__file__).parents[1] / "format"))

from bundle_maker import published
from web_server import WebServer, serving

from zoo.store import Store, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A folder with one release of the model `tiny`."""
    made = open_store(str(tmp_path / "store"))
    published(made, tmp_path / "made", "ab")
    return made


@pytest.fixture
def server(store: Store, tmp_path: Path) -> Iterator[WebServer]:
    """Shows the store."""
    assert store.url
    with serving(tmp_path / "store") as running:
        yield running
