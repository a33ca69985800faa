"""The torchvision source: structures without downloads, weights only through our door."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest
import torch

from zoo.errors import HashMismatch, SourceError
from zoo.sources import torchvision
from zoo.sources.checkpoint import fetch
from zoo.sources.context import Context
from zoo.spec import TorchvisionSource

if TYPE_CHECKING:
    from pathlib import Path


def _source(builder: str, weights: str | None = None) -> TorchvisionSource:
    return TorchvisionSource(kind="torchvision", builder=builder, weights=weights)


_SQUEEZENET = _source("squeezenet1_1", "SqueezeNet1_1_Weights.IMAGENET1K_V1")


def test_segmentation_without_weights_fetches_no_backbone(tmp_path: Path) -> None:
    """No network is asked where no weights are named; a download would fail in this home."""
    (tmp_path / "home").write_text("not a folder")
    source = _source("lraspp_mobilenet_v3_large")
    assert isinstance(torchvision.untrained(source, Context("m", tmp_path)), torch.nn.Module)


def test_weights_come_through_our_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The builder gets tensors that were fetched with their hash and read without pickle."""
    context = Context("m", tmp_path)
    state = torchvision.untrained(_SQUEEZENET, context).state_dict()
    torch.save(state, tmp_path / "w.pth")
    asked: list[tuple[str, str]] = []

    def stand_in(url: str, sha256: str, *, model: str) -> Path:
        asked.append((url.rpartition("/")[2], sha256))
        return tmp_path / "w.pth"

    monkeypatch.setattr("zoo.sources.torchvision.fetch", stand_in)
    loaded = torchvision.trained(_SQUEEZENET, context).state_dict()
    assert asked == [("squeezenet1_1-b8a52dc0.pth", "b8a52dc0")]
    assert all(torch.equal(loaded[key], state[key]) for key in state)


def test_a_pinned_digest_is_compared_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight digits in a file's name can be met by other bytes; sixty-four cannot."""
    context, asked = Context("m", tmp_path), []
    torch.save(torchvision.untrained(_SQUEEZENET, context).state_dict(), tmp_path / "w.pth")

    def stand_in(url: str, sha256: str, *, model: str) -> Path:
        asked.append(sha256)
        return tmp_path / "w.pth"

    monkeypatch.setattr("zoo.sources.torchvision.fetch", stand_in)
    pinned = _SQUEEZENET.model_copy(update={"sha256": "b8a52dc0" + "0" * 56})
    torchvision.trained(pinned, context)
    assert asked == ["b8a52dc0" + "0" * 56]


def test_wrong_bytes_behind_the_enum(
    https_server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file that does not have the hash in its name is not opened."""
    body = b"not the weights"
    https_server.bodies["/squeezenet1_1-b8a52dc0.pth"] = body

    def redirected(url: str, sha256: str, *, model: str) -> Path:
        name = url.rpartition("/")[2]
        return fetch(f"{https_server.address}/{name}", sha256, model=model)

    monkeypatch.setattr("zoo.sources.torchvision.fetch", redirected)
    with pytest.raises(HashMismatch, match=hashlib.sha256(body).hexdigest()):
        torchvision.trained(_SQUEEZENET, Context("m", tmp_path))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (_source("resnet81"), "no builder 'resnet81'. Did you mean 'resnet18'"),
        (_source("squeezenet1_1", "Squeezenet.V1"), "has no weights Squeezenet.V1"),
        (
            _source("squeezenet1_1", "ResNet18_Weights.IMAGENET1K_V1"),
            "It has: SqueezeNet1_1_Weights.IMAGENET1K_V1",
        ),
    ],
)
def test_mistaken_entries(tmp_path: Path, source: TorchvisionSource, message: str) -> None:
    """Unknown builders, and weights of another model, say what there is."""
    with pytest.raises(SourceError) as caught:
        torchvision.trained(source, Context("m", tmp_path))
    assert message in str(caught.value)
