"""Running a piece of a program on the CPU target, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from menagerie.format.bundle_manifest import TensorSpec
from menagerie.numerics import Dtype
from menagerie.tensor_files import read_inputs, readable, write_outputs
from tests.pieces import assert_as_eager, run_bundle, run_piece
from transforms import convert
from transforms.bisect import locate
from zoo.errors import SessionError


def test_broken_bundle_ends_in_one_line(tmp_path: Path) -> None:
    """What the runtime refuses is reported without a traceback."""
    with pytest.raises(SessionError) as caught:
        run_bundle(tmp_path, {"x": torch.ones(2)}, tmp_path, target="cpu")
    assert len(str(caught.value).splitlines()) == 1
    assert "manifest" in str(caught.value)
    assert not (tmp_path / "outputs.npz").exists()


class _Decimals(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Round to tenths, and to tens, and say whether a tenth of 13 is one."""
        tenths = torch.round(x, decimals=1)
        return tenths, torch.round(x, decimals=-1), tenths == 1.3


def test_decimals_are_those_that_eager_rounds_to(tmp_path: Path) -> None:
    """13 times 0.1 is the number after 1.3."""
    x = torch.arange(-300, 301) / 20
    convert(_Decimals(), (torch.randn(601),), out=tmp_path / "out", measure_seconds=0)
    assert_as_eager(tmp_path / "out", _Decimals(), (x,))


def test_process_never_loads_torch(tmp_path: Path) -> None:
    """Torch's own shims must not be there for the library to bind to."""
    code = (
        "import sys, menagerie.cli, menagerie.session, menagerie.tensor_files;"
        f"menagerie.cli.main(['run', {str(tmp_path)!r}]);"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "bool", "uint8"])
def test_written_tensors_are_read_back(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every element type, a scalar and an empty tensor survive the files between the processes."""
    tensors = {
        "full": torch.arange(6).reshape(2, 3),
        "scalar": torch.ones(()),
        "none": torch.ones(0),
    }
    tensors = {name: value.to(getattr(torch, dtype)) for name, value in tensors.items()}
    specs = {n: TensorSpec(n, Dtype(dtype), tuple(value.shape)) for n, value in tensors.items()}

    def same(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        """A program that gives back what it is given, in the files of the real one."""
        given = [text for text in command if text.endswith(".npy")]
        found = read_inputs(given, list(specs.values()))
        answers = {name: readable(value, Dtype(dtype)) for name, value in found.items()}
        write_outputs(answers, Path(command[command.index("--output") + 1]))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", same)
    loaded = run_bundle(tmp_path, tensors, tmp_path, target="cpu")
    for name, value in tensors.items():
        assert torch.equal(torch.from_numpy(loaded[name]).to(value.dtype), value)


class Repeating(nn.Module):
    """One result in three places, and a view of it."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Rows (4, 4)."""
        y = x.cumsum(0)
        return y, y, y.t(), y


@pytest.mark.parametrize("target", ["cpu", "metal"])
def test_a_tensor_may_be_several_outputs(target: str) -> None:
    """The library gives its handle as often; the runtime lets go of it once."""
    x = torch.arange(16.0).reshape(4, 4).half()
    program = torch.export.export(Repeating(), (x,)).run_decompositions({})
    for found, expected in zip(
        run_piece(program, (x,), target=target), Repeating()(x), strict=True
    ):
        assert torch.equal(found, expected)


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
    assert locate(program, [], [torch.randn(7, 8)]) is None
