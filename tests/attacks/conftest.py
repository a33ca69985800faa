"""Attackers' surroundings: nothing unsigned is allowed, keys and trust are the test's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime" / "format"))
sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))

from bundle_maker import make_bundle

from zoo.signing.keyring import Keyring
from zoo.signing.promotion import Promoter
from zoo.store import Store, open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from zoo.store import Release


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, keys and trusted roots of the test's own; unsigned bundles are refused."""
    for name in ("MENAGERIE_ALLOW_UNSIGNED", "MENAGERIE_KEYS", "MENAGERIE_TRUST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def keyring(own_home: Path) -> Keyring:
    """New keys, trusted here."""
    return Keyring.create(own_home / "keys")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store in a folder."""
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def promoted(tmp_path: Path, store: Store, keyring: Keyring) -> Callable[..., Release]:
    """Proposes and promotes a tiny bundle; its library's bytes and build key are from `digits`."""

    def make(digits: str = "ab", **changes: object) -> Release:
        files = {"programs/main/model.so": digits.encode()}
        folder = make_bundle(tmp_path / f"made-{digits}", files, build_key=digits * 32, **changes)
        return Promoter(store, keyring).promote(store.propose(folder))

    return make
