"""Running a piece of a program on the CPU target, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import transforms.bisect.session_process
from transforms.bisect import locate
from transforms.bisect.piece import run_piece

SCRIPT = Path(transforms.bisect.session_process.__file__)


def _session_process(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_broken_bundle_ends_in_one_line(tmp_path: Path) -> None:
    """What the runtime refuses is told without a traceback."""
    done = _session_process(SCRIPT.parents[2], tmp_path, tmp_path / "in", tmp_path / "out")
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_process_never_loads_torch() -> None:
    """Torch's own shims must not be there for the library to bind to."""
    code = (
        f"import sys, runpy; sys.argv = ['x', {str(SCRIPT.parents[2])!r}, 'none', 'none', 'none'];"
        f"sys.stderr = open('/dev/null', 'w')\n"
        f"try: runpy.run_path({str(SCRIPT)!r}, run_name='__main__')\n"
        f"except SystemExit: print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "bool", "uint8"])
def test_written_tensors_are_read_back(dtype: str, tmp_path: Path) -> None:
    """Every element type, a scalar and an empty tensor survive the file between the processes."""
    tensors = {
        "full": torch.arange(6).reshape(2, 3),
        "scalar": torch.ones(()),
        "none": torch.ones(0),
    }
    tensors = {name: value.to(getattr(torch, dtype)) for name, value in tensors.items()}
    arrays: dict[str, np.ndarray[Any, Any]] = {
        name: value.view(torch.int16).numpy().view(np.uint16)
        if dtype == "bfloat16"
        else value.numpy()
        for name, value in tensors.items()
    }
    path = tmp_path / "tensors.safetensors"
    transforms.bisect.session_process._write(path, arrays, dict.fromkeys(arrays, dtype))
    loaded = load_file(path)
    assert all(torch.equal(loaded[name], value) for name, value in tensors.items())


@pytest.mark.sweep
def test_lowered_program_of_dynamic_size_equals_eager(tmp_path: Path) -> None:
    """The real target, compiled and run: there is nothing to locate in a small network."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 8)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.second(torch.relu(self.first(x))).softmax(-1), (x > 0).sum(-1)

    batch = torch.export.Dim("batch", min=2, max=9)
    program = torch.export.export(
        Net().eval(), (torch.randn(4, 8),), dynamic_shapes=({0: batch},), strict=False
    ).run_decompositions({})
    assert locate(program, [], [torch.randn(7, 8)], run=run_piece) is None
