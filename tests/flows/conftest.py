"""A home of its own for every test, and a manifest of toys."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from zoo.signing.keyring import Keyring
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from zoo.store import Store

sys.path.insert(0, str(Path(__file__).parents[1] / "tasks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "runtime" / "format"))

ENTRY = """
  {name}:
    summary: a toy
    source: {{kind: torchvision, builder: resnet18}}
    programs:
      - inputs: [{{name: x, shape: [1, 3]}}]
    targets: [cpu]
    licence: {{spdx: Apache-2.0}}
    tags: [{tags}]
"""


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Menagerie's cache folder, for this test alone; no store or server of the developer's."""
    home = tmp_path / "home"
    monkeypatch.setenv("MENAGERIE_HOME", str(home))
    monkeypatch.delenv("MENAGERIE_STORE", raising=False)
    monkeypatch.delenv("MENAGERIE_DEBUG", raising=False)
    return home


@pytest.fixture
def lent_home(own_home: Path, lend_compiled: Callable[[Path], Path]) -> Path:
    """The same, with what the developer's own has compiled: for tests that lower a model."""
    return lend_compiled(own_home)


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """A folder with a manifest of the toys ant, bee and cat; ant and bee are the default."""
    folder = tmp_path / "manifest"
    folder.mkdir()
    entries = [("ant", "default"), ("bee", "default, small"), ("cat", "")]
    text = "".join(ENTRY.format(name=name, tags=tags) for name, tags in entries)
    (folder / "toys.yaml").write_text(f"version: 1\nfamily: toys\nmodels:{text}")
    return folder


@pytest.fixture
def signed_store(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The default store, empty, with keys in `tmp_path/keys`; nothing unsigned is taken from it."""
    monkeypatch.delenv("MENAGERIE_ALLOW_UNSIGNED", raising=False)
    monkeypatch.setenv("MENAGERIE_KEYS", str(tmp_path / "keys"))
    opened = open_store(str(tmp_path / "store"))
    monkeypatch.setenv("MENAGERIE_STORE", opened.url)
    Keyring.create(tmp_path / "keys")
    return opened
