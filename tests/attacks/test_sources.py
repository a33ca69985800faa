"""Weights and their makers: what they name stays in its folder and its size."""

from __future__ import annotations

import json
import os
import zipfile
from typing import TYPE_CHECKING

import pytest
import torch

from menagerie.figures import shown_address
from zoo.errors import SourceRefused, UsageError
from zoo.sources.checkpoint import read_state
from zoo.sources.context import Context, weights_folder
from zoo.sources.fingerprint import _folder_digest
from zoo.store import open_store

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A folder of weights beside a manifest, and a secret outside."""
    folder = tmp_path / "manifest" / "weights"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model-1.safetensors").write_bytes(b"one")
    (tmp_path / "secret.safetensors").write_bytes(b"secret")
    return folder


def checked(weights: Path) -> Path:
    """What the pipeline makes of it."""
    return weights_folder("weights", Context("tiny", weights.parent))


def index(weights: Path, shard: str) -> None:
    """An index that names this shard."""
    content = {"metadata": {}, "weight_map": {"fc.weight": shard}}
    (weights / "model.safetensors.index.json").write_text(json.dumps(content))


def test_a_sound_folder_is_taken(weights: Path) -> None:
    """With an index of its own shards."""
    index(weights, "model-1.safetensors")
    assert checked(weights) == weights


def test_a_link_out_of_the_manifests_folder_is_refused(weights: Path, tmp_path: Path) -> None:
    """Inside the weights' folder too, not only on the way to it."""
    (weights / "model-2.safetensors").symlink_to(tmp_path / "secret.safetensors")
    with pytest.raises(SourceRefused, match="link out of"):
        checked(weights)


@pytest.mark.parametrize("shard", ["../../secret.safetensors", "/etc/passwd", "sub/x.safetensors"])
def test_an_index_names_files_beside_it(weights: Path, shard: str) -> None:
    """So that all that is read is part of the folder's digest, and of the build key."""
    index(weights, shard)
    with pytest.raises(SourceRefused, match="not a file beside it"):
        checked(weights)


def test_a_changed_shard_changes_the_digest(weights: Path) -> None:
    """Whatever is read is in it."""
    before = _folder_digest(weights)
    (weights / "model-1.safetensors").write_bytes(b"two")
    assert _folder_digest(weights) != before


def test_a_checkpoint_does_not_inflate(tmp_path: Path) -> None:
    """A `.pth` whose entries are compressed: 4 GB of zeros in a few kilobytes."""
    sound, bomb = tmp_path / "sound.pth", tmp_path / "bomb.pth"
    torch.save({"fc.weight": torch.zeros(1000)}, sound)
    with zipfile.ZipFile(sound) as old, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    assert read_state(sound, "tiny")["fc.weight"].shape == (1000,)
    with pytest.raises(SourceRefused, match="unpack to more than it is"):
        read_state(bomb, "tiny")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_checkpoint_is_no_code(tmp_path: Path) -> None:
    """What torch.jit.save wrote is called so, and not what unpacks to more than it is."""
    torch.jit.save(torch.jit.script(torch.nn.Linear(4, 2)), tmp_path / "net.pth")
    with pytest.raises(SourceRefused, match="is TorchScript: code"):
        read_state(tmp_path / "net.pth", "tiny")


@pytest.mark.parametrize(
    "url",
    [
        "https://user:hunter2@models.example/w.pth",
        "https://models.example/w.pth?X-Amz-Signature=hunter2",
        "https://user:hunter2@[broken/w.pth?a=hunter2",
    ],
)
def test_no_message_shows_what_is_secret_in_an_address(url: str) -> None:
    """Neither a password nor a presigned signature."""
    assert "hunter2" not in shown_address(url)
    assert "w.pth" in shown_address(url)


def test_a_stores_address_is_shown_without_its_query() -> None:
    """Also where it is refused."""
    with pytest.raises(UsageError) as caught:
        open_store("s3://user:hunter2@models/zoo?signature=hunter2")
    assert "hunter2" not in str(caught.value)


def test_the_tests_home_is_their_own() -> None:
    """Nothing of these attacks reaches the developer's own folder."""
    assert os.environ["MENAGERIE_HOME"].startswith(("/tmp", os.environ.get("TMPDIR", "/tmp")))
