"""The benchmark's figure for memory is the bundle's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from menagerie.format.folder import seal
from menagerie.numerics import Dtype

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from handmade import handmade_program
from manifests import draft_manifest

_SCRIPT = Path(__file__).parents[3] / "benchmarks" / "run_memory.py"
_MIB = 2**20


def test_neither_the_callers_memory_nor_pythons_counts(tmp_path: Path, libraries: Path) -> None:
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
    command = [sys.executable, str(_SCRIPT), str(tmp_path), "main"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert held.all()
    assert 0 < int(done.stdout) < 100 * _MIB
