"""A file of tensors with notes has the same bytes each time, and reads as the library's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from safetensors import safe_open

from menagerie.tensor_files import read_notes, read_tensors
from transforms.bundle import save_with_metadata

if TYPE_CHECKING:
    from pathlib import Path

_NOTES = {"0": "noise", "1": "noise", "2": "picture", "é": "ü", "4": "a 'quoted' \"word\""}


def test_the_same_bytes_each_time(tmp_path: Path) -> None:
    """Of 120 orders of five notes the library takes any."""
    tensors = {"b": torch.arange(3.0), "a": torch.ones(2, dtype=torch.int8)}
    contents = set()
    for number in range(12):
        path = tmp_path / f"{number}.safetensors"
        save_with_metadata(tensors, path, dict(reversed(_NOTES.items())) if number % 2 else _NOTES)
        contents.add(path.read_bytes())
    assert len(contents) == 1


def test_it_is_a_file_of_safetensors(tmp_path: Path) -> None:
    """The library and our own reader find tensors and notes."""
    path = tmp_path / "a.safetensors"
    save_with_metadata({"b": torch.arange(3.0)}, path, _NOTES)
    with safe_open(path, "pt") as found:
        assert found.metadata() == _NOTES
        assert torch.equal(found.get_tensor("b"), torch.arange(3.0))
    assert read_tensors(path)["b"].tolist() == [0.0, 1.0, 2.0]
    assert read_notes(path) == _NOTES
