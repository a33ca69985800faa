"""Loading: which weights a model gets, and that it says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from zoo.errors import SourceError
from zoo.manifest import load_manifest
from zoo.sources import LoadedModel, load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from zoo.spec import ModelSpec

_YOLO = {
    "kind": "factory",
    "builder": "zoo.models.builders.yolo_style:yolo_style",
    "arguments": {"width": 4, "classes": 2},
    "has_weights": False,
}
_IMAGE = [{"inputs": [{"name": "image", "shape": [1, 3, 32, 32]}]}]


def _load(spec: ModelSpec, folder: Path, **changes: Any) -> LoadedModel:
    asked: dict[str, Any] = {"random_weights": None, "allow_factories": False} | changes
    return load("m", spec, origin=folder / "file.yaml", **asked)


def test_no_weights_and_no_seed(make_spec: Callable[..., ModelSpec], tmp_path: Path) -> None:
    """Random weights are never chosen silently."""
    with pytest.raises(SourceError, match=r"names no weights\..* --random-weights SEED"):
        _load(make_spec(_YOLO, programs=_IMAGE), tmp_path)


def test_a_seed_makes_the_model(make_spec: Callable[..., ModelSpec], tmp_path: Path) -> None:
    """The same seed gives the same bits, another seed others; the caller's random state stays."""
    spec = make_spec(_YOLO, programs=_IMAGE)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = _load(spec, tmp_path, random_weights=0)
    assert torch.equal(torch.rand(3), expected)
    again, other = (_load(spec, tmp_path, random_weights=seed) for seed in (0, 1))
    image = torch.rand(1, 3, 32, 32)
    assert first.random_weights == 0
    assert first.description.endswith("random, seed 0")
    assert torch.equal(first.module(image)["boxes"], again.module(image)["boxes"])
    assert not torch.equal(first.module(image)["boxes"], other.module(image)["boxes"])


@pytest.mark.parametrize("seed", [None, 0])
def test_weights_at_hand_are_used(seed: int | None) -> None:
    """A seed replaces fetching; our trained digits need none, so they stay trained."""
    manifest = load_manifest()
    loaded = load(
        "digits_cnn",
        manifest.spec("digits_cnn"),
        origin=manifest.origins["digits_cnn"].file,
        random_weights=seed,
        allow_factories=False,
    )
    assert loaded.random_weights is None
    assert "sha256" in loaded.description


def test_ready_for_export(make_spec: Callable[..., ModelSpec], tmp_path: Path) -> None:
    """In eval mode, in the entry's dtype, without gradients."""
    spec = make_spec(_YOLO, programs=_IMAGE, dtype="bfloat16")
    module = _load(spec, tmp_path, random_weights=0).module
    assert not any(layer.training for layer in module.modules())
    assert {p.dtype for p in module.parameters()} == {torch.bfloat16}
    assert not any(p.requires_grad for p in module.parameters())
