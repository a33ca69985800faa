"""Fingerprints: other content, other text; found out without running anything."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from zoo.errors import SourceError
from zoo.sources.fingerprint import fingerprint, seed_used

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from zoo.spec import ModelSpec

_CHECKPOINT = {
    "kind": "checkpoint",
    "builder": "zoo.models.builders.digits_cnn:digits_cnn",
    "path": "w.safetensors",
    "sha256": "0" * 64,
}
_HUB = {"kind": "transformers", "architecture": "A", "id": "a/b", "revision": "1" * 40}
_TORCHVISION = {"kind": "torchvision", "builder": "resnet18", "weights": "W.V1"}


@pytest.fixture
def ask(make_spec: Callable[..., ModelSpec], tmp_path: Path) -> Callable[..., str]:
    """Fingerprint of an entry in the test's folder."""

    def ask(source: dict[str, Any], seed: int | None = None, **changes: Any) -> str:
        origin = tmp_path / "file.yaml"
        return fingerprint(make_spec(source, **changes), origin=origin, random_weights=seed)

    return ask


def test_each_change_of_weights_shows(ask: Callable[..., str]) -> None:
    """Seeds, enums, revisions and digests are distinguished."""
    seen = [
        ask(_TORCHVISION),
        ask(_TORCHVISION | {"weights": "W.V2"}),
        ask(_TORCHVISION, 0),
        ask(_TORCHVISION, 1),
        ask(_HUB),
        ask(_HUB | {"revision": "2" * 40}),
        ask(_CHECKPOINT),
        ask(_CHECKPOINT | {"sha256": "1" * 64}),
    ]
    assert len(set(seen)) == len(seen)


def test_seed_counts_only_where_it_replaces_fetching(
    ask: Callable[..., str], make_spec: Callable[..., ModelSpec]
) -> None:
    """Weights at hand are the same with and without `--random-weights`."""
    assert ask(_CHECKPOINT) == ask(_CHECKPOINT, 0)
    assert seed_used(make_spec(_CHECKPOINT), 0) is None
    assert seed_used(make_spec(_TORCHVISION), 0) == 0


def test_bytes_of_a_folder_show(ask: Callable[..., str], tmp_path: Path) -> None:
    """A changed weights file or configuration is another fingerprint; other files are not."""
    source = {"kind": "transformers", "architecture": "A", "folder": "saved"}
    with pytest.raises(SourceError, match="saved does not exist"):
        ask(source)
    (tmp_path / "saved").mkdir()
    seen = [ask(source)]
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "saved" / name).write_text(name)
        seen.append(ask(source))
    assert len(set(seen)) == 3
    (tmp_path / "saved" / "README.md").write_text("")
    assert ask(source) == seen[-1]


def test_code_of_a_builder_shows_without_running(ask: Callable[..., str], tmp_path: Path) -> None:
    """Editing the builder's file is another fingerprint; it is read, never imported."""
    source = {"kind": "factory", "builder": "owners_package.unet:build"}
    absent = ask(source)
    (tmp_path / "owners_package").mkdir()
    (tmp_path / "owners_package" / "__init__.py").write_text("raise SystemExit\n")
    seen = []
    for text in ("raise SystemExit\n", "raise SystemExit()\n"):
        (tmp_path / "owners_package" / "unet.py").write_text(text)
        seen.append(ask(source))
    assert len({absent, *seen}) == 3
    assert "owners_package" not in sys.modules


def test_data_of_the_accuracy_gate_shows(ask: Callable[..., str], tmp_path: Path) -> None:
    """Other labelled images are another artifact."""
    gate = {"accuracy": {"data": "d.safetensors"}}
    with pytest.raises(SourceError, match=r"d\.safetensors does not exist"):
        ask(_TORCHVISION, **gate)
    (tmp_path / "d.safetensors").write_text("a")
    first = ask(_TORCHVISION, **gate)
    (tmp_path / "d.safetensors").write_text("b")
    assert ask(_TORCHVISION, **gate) != first
