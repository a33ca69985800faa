"""Checkpoints: checked before they are opened, and nothing in them ever runs."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import save_file

from zoo.errors import HashMismatch, SourceError, SourceRefused
from zoo.models.builders.digits_cnn import digits_cnn
from zoo.sources.checkpoint import trained
from zoo.sources.context import Context
from zoo.spec import CheckpointSource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_BUILDER = "zoo.models.builders.digits_cnn:digits_cnn"


def _source(path: str, sha256: str) -> CheckpointSource:
    return CheckpointSource(kind="checkpoint", builder=_BUILDER, path=path, sha256=sha256)


def _load(file: Path) -> torch.nn.Module:
    """Load `file` as an entry beside it would, with its true sha256."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return trained(_source(file.name, digest), Context("m", file.parent))


@pytest.mark.parametrize(
    ("name", "save"),
    [("w.safetensors", save_file), ("w.pt", torch.save)],
    ids=["safetensors", "pt"],
)
def test_both_formats_give_the_same_weights(
    tmp_path: Path, name: str, save: Callable[[Mapping[str, torch.Tensor], Path], None]
) -> None:
    """Every tensor arrives bit for bit."""
    state = digits_cnn().state_dict()
    save(state, tmp_path / name)
    loaded = _load(tmp_path / name).state_dict()
    assert loaded.keys() == state.keys()
    assert all(torch.equal(loaded[key], state[key]) for key in state)


def test_other_bytes_are_refused(tmp_path: Path) -> None:
    """The digest is compared before the file is read; the message holds both."""
    (tmp_path / "w.safetensors").write_bytes(b"anything")
    actual = hashlib.sha256(b"anything").hexdigest()
    with pytest.raises(HashMismatch) as caught:
        trained(_source("w.safetensors", "0" * 64), Context("m", tmp_path))
    assert f"has sha256 {actual}, promised was {'0' * 64}" in str(caught.value)


def test_a_path_outside_is_taken_where_the_entry_says_so(tmp_path: Path) -> None:
    """By `..` or from the root on, with its digest; else the message says what would work."""
    file, folder = tmp_path / "w.safetensors", tmp_path / "manifest"
    folder.mkdir()
    save_file(digits_cnn().state_dict(), file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    for path in ("../w.safetensors", str(file)):
        with pytest.raises(SourceRefused, match="may say `outside: true`"):
            trained(_source(path, digest), Context("m", folder))
        outside = _source(path, digest).model_copy(update={"outside": True})
        assert trained(outside, Context("m", folder)).state_dict()
        with pytest.raises(HashMismatch) as other:
            trained(outside.model_copy(update={"sha256": "0" * 64}), Context("m", folder))
        assert digest not in str(other.value)
    for path in ("..", "~no-such-user/w.pt"):
        with pytest.raises(SourceError, match="is not a "):
            trained(outside.model_copy(update={"path": path}), Context("m", folder))


class _Malice:
    """Touches a file when unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.mark,))


@pytest.mark.parametrize("save", [torch.save, lambda o, p: p.write_bytes(pickle.dumps(o))])
def test_malicious_pickle_does_not_run(tmp_path: Path, save: Callable[..., None]) -> None:
    """Even with the right sha256, a pickle of more than tensors is refused, and runs nothing."""
    mark = tmp_path / "mark"
    save({"features.0.weight": _Malice(mark)}, tmp_path / "w.pt")
    with pytest.raises(SourceRefused, match="Save the state dict as safetensors"):
        _load(tmp_path / "w.pt")
    assert not mark.exists()


@pytest.mark.parametrize("path", ["../w.safetensors", "/etc/passwd", "link.safetensors"])
def test_paths_stay_beside_the_manifest(tmp_path: Path, path: str) -> None:
    """Neither `..`, an absolute path nor a link leads out, even to a file that exists."""
    (tmp_path / "w.safetensors").touch()
    folder = tmp_path / "manifest"
    folder.mkdir()
    (folder / "link.safetensors").symlink_to(tmp_path / "w.safetensors")
    with pytest.raises(SourceRefused, match="leads out of the manifest's folder"):
        trained(_source(path, "0" * 64), Context("m", folder))


def test_missing_file(tmp_path: Path) -> None:
    """A file that is not there is named."""
    with pytest.raises(SourceError, match=r"w\.pt does not exist"):
        trained(_source("w.pt", "0" * 64), Context("m", tmp_path))


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
@pytest.mark.parametrize("content", [b"", b"\x00" * 7, b"\xff" * 100, bytes(range(64))])
def test_rubbish_is_one_line(tmp_path: Path, name: str, content: bytes) -> None:
    """Truncated or random bytes are a SourceError, without torch's page of advice."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError) as caught:
        _load(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_no_state_dict(tmp_path: Path) -> None:
    """A file of something else than named tensors says what to save instead."""
    torch.save([torch.zeros(1)], tmp_path / "w.pt")
    with pytest.raises(SourceError, match=r"is not a state dict. Save module\.state_dict"):
        _load(tmp_path / "w.pt")


def test_weights_of_another_module(tmp_path: Path) -> None:
    """Missing, unknown and misshapen tensors are counted, with an example each."""
    state = digits_cnn().state_dict()
    del state["classifier.bias"]
    state["extra"] = torch.zeros(1)
    state["classifier.weight"] = torch.zeros(10, 65)
    save_file(state, tmp_path / "w.safetensors")
    with pytest.raises(SourceError) as caught:
        _load(tmp_path / "w.safetensors")
    assert (
        "1 missing (classifier.bias), 1 unknown to the module (extra), "
        "1 of another shape (classifier.weight)"
    ) in str(caught.value)


def test_from_a_url(https_server: Any, tmp_path: Path) -> None:
    """A checkpoint behind https is fetched and checked like one on disk."""
    save_file(digits_cnn().state_dict(), tmp_path / "w.safetensors")
    body = (tmp_path / "w.safetensors").read_bytes()
    https_server.bodies["/w.safetensors"] = body
    source = _source(f"{https_server.address}/w.safetensors", hashlib.sha256(body).hexdigest())
    assert isinstance(trained(source, Context("m", tmp_path)), torch.nn.Module)
    https_server.bodies["/w2.safetensors"] = body[:-1] + b"x"
    other = source.model_copy(update={"path": f"{https_server.address}/w2.safetensors"})
    with pytest.raises(HashMismatch):
        trained(other, Context("m", tmp_path))
