"""The memory that menagerie-run prints is its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from menagerie.format.folder import seal
from menagerie.library import native_tool
from menagerie.numerics import Dtype

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from handmade import handmade_program
from manifests import draft_manifest

_MIB = 2**20


def test_the_callers_memory_does_not_count(tmp_path: Path, libraries: Path) -> None:
    """With a caller of 400 MiB, a program without weights takes what its library does."""
    home = tmp_path / "programs" / "main"
    home.mkdir(parents=True)
    (home / "model.so").write_bytes((libraries / "model.so").read_bytes())
    tensors = {"0/input/x": torch.zeros(8), "0/output/y": torch.zeros(8)}
    save_file(tensors, home / "golden.safetensors")
    save_file({"unused": torch.zeros(1)}, tmp_path / "weights.safetensors")
    files = {"weights": "weights.safetensors"}
    program = handmade_program("main", Dtype.FLOAT32, (8,), 1)
    seal(tmp_path, draft_manifest("identity", [program], files))
    held = np.ones(400 * _MIB, np.uint8)
    command = [str(native_tool()), "--allow-unsigned", "--bench", "1", str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert held.all()
    *words, number, unit = done.stdout.splitlines()[-1].split()
    assert (words, unit) == (["most", "memory"], "MB")
    assert 0 < float(number) < 100
