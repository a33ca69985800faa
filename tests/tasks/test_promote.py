"""What a promotion refuses, and what its command hands on."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime" / "format"))

from bundle_maker import make_bundle

from flows.cli import invoke
from tasks import publish
from zoo.errors import ValidationError
from zoo.manifest import load_manifest
from zoo.signing.keyring import Keyring
from zoo.store import KeepRule, open_store
from zoo.store.garbage_collection import sweep

if TYPE_CHECKING:
    from zoo.store import Release, Store

ENTRY = """
version: 1
family: Toys
models:
  tiny:
    summary: a toy
    source: {kind: factory, builder: "net:make"}
    programs:
      - inputs: [{name: x, shape: [1, 3]}]
    targets: [cpu]
    licence: {spdx: Apache-2.0}
"""


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """A manifest whose model is built by code beside it."""
    folder = tmp_path / "manifest"
    folder.mkdir()
    (folder / "toys.yaml").write_text(ENTRY)
    return folder


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with one candidate, and keys to promote it with."""
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MENAGERIE_KEYS", str(tmp_path / "keys"))
    monkeypatch.setenv("MENAGERIE_TRUST", str(tmp_path / "trust"))
    (tmp_path / "trust").mkdir()
    Keyring.create(tmp_path / "keys")
    opened = open_store(str(tmp_path / "store"))
    opened.propose(make_bundle(tmp_path / "made"))
    return opened


def test_goldens_that_take_for_ever_are_an_error_of_ours(
    store: Store, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eager PyTorch is given so long; then the promotion says so, and signs nothing."""
    monkeypatch.setattr(publish, "_GOLDEN_SECONDS", 0.01)
    [candidate] = store.candidates()
    with pytest.raises(ValidationError, match=r"within 0 s.*--no-goldens"):
        publish.promote_candidate(
            store,
            Keyring(tmp_path / "keys"),
            candidate,
            load_manifest(manifest).spec("tiny"),
            manifest=manifest,
        )
    assert store.ledgers("tiny") == []


@pytest.mark.parametrize("allowed", [False, True])
def test_factories_run_where_they_are_allowed(
    store: Store, manifest: Path, monkeypatch: pytest.MonkeyPatch, *, allowed: bool
) -> None:
    """`zoo release promote` has the switch that `zoo convert` has, and hands on what it says."""
    asked: list[bool] = []

    def judged(opened: Store, _keys: Keyring, candidate: Release, *_: Any, **how: Any) -> None:
        assert (opened.url, candidate.model) == (store.url, "tiny")
        asked.append(how["allow_factories"])

    monkeypatch.setattr(publish, "promote_candidate", judged)
    words = ["promote", "tiny", "--manifest", str(manifest), "--store", store.url]
    assert invoke([*words, *(["--allow-factories"] if allowed else [])]) == 0
    assert asked == [allowed]


def test_a_candidate_is_held_while_it_is_judged(
    store: Store, manifest: Path, tmp_path: Path
) -> None:
    """A sweep that takes everything comes while it runs: what was judged is what is signed."""
    [candidate] = store.candidates()
    everything = KeepRule(releases=1, candidate_days=0, grace_hours=0)

    def judged(bundle: Path, **_: Any) -> Any:
        assert sweep(store.objects, everything, dry_run=False).candidates == ()
        return SimpleNamespace(passed=True)

    promoted = publish.promote_candidate(
        store,
        Keyring(tmp_path / "keys"),
        candidate,
        load_manifest(manifest).spec("tiny"),
        manifest=manifest,
        goldens=False,
        judge=judged,
    )
    assert store.held([promoted.names])
    assert store.objects.list_keys("publishing/") == []
