"""Safetensors with notes, in one order: the library writes them in one of chance."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from safetensors.torch import save_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch

__all__ = ["save_noted"]

_LENGTH = 8  # bytes before the header, which say how long it is


def save_noted(tensors: Mapping[str, torch.Tensor], path: Path, notes: Mapping[str, str]) -> None:
    """Write tensors, and notes in the file's `__metadata__`."""
    save_file(dict(tensors), path, metadata=dict(notes))
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(_LENGTH), "little")
        header = json.loads(file.read(size)) | {"__metadata__": dict(sorted(notes.items()))}
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        file.seek(_LENGTH)
        file.write(text.ljust(size))
