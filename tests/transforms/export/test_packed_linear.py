"""torchao's linear layer of four bits: declared here, lowered for Metal, refused on the CPU."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from tests.pieces import assert_as_eager
from transforms import convert
from zoo.errors import UnsupportedKernels

if TYPE_CHECKING:
    from pathlib import Path

_GROUP = 64


class _Layer(nn.Module):
    """What torchao's quantisation for Metal puts in the place of a linear layer of 128 to 6."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        numbers = torch.randint(0, 16, (6, 128), dtype=torch.uint8)
        self.numbers = numbers
        self.register_buffer("packed_weights", numbers[:, 0::2] | numbers[:, 1::2] << 4)
        self.weight_scales = nn.Parameter(torch.rand(6, 2) / 32, requires_grad=False)
        self.weight_zeros = nn.Parameter(-8 * self.weight_scales, requires_grad=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """(M, 6) of rows (M, 128)."""
        operator = torch.ops.torchao._linear_fp_act_4bit_weight
        scales = self.weight_scales, self.weight_zeros
        return torch.relu(operator(rows, self.packed_weights, _GROUP, *scales))


def test_metal_computes_it(tmp_path: Path) -> None:
    """Of any number of rows, an exported layer gives what float64 makes of its weight."""
    layer = _Layer()
    rows = torch.randn(3, 128)
    axis = {0: torch.export.Dim("batch", min=1, max=8)}
    made = convert(
        layer, (rows,), target="metal", dynamic_shapes=(axis,), out=tmp_path / "out",
        measure_seconds=0,
    )  # fmt: skip
    parts = layer.weight_scales, layer.weight_zeros
    scales, zeros = (part.double().repeat_interleave(_GROUP, 1) for part in parts)
    weight, calls = layer.numbers * scales + zeros, ((torch.randn(n, 128),) for n in (1, 3, 8))

    def exact(rows: torch.Tensor) -> torch.Tensor:
        return (rows.double() @ weight.T).relu().float()

    assert_as_eager(made.folder, exact, *calls, rtol=1e-5, atol=1e-5)


def test_the_cpu_refuses_it_by_name(tmp_path: Path) -> None:
    """Lowering for the CPU names the operator, and the module that uses it."""
    with pytest.raises(UnsupportedKernels, match="_linear_fp_act_4bit_weight"):
        convert(_Layer(), (torch.randn(2, 128),), out=tmp_path / "out", measure_seconds=0)


def test_operators_declared_before_stay(tmp_path: Path) -> None:
    """An operator that is declared already stays; what it lacks for CPU or tracing is added."""
    script = tmp_path / "before.py"
    script.write_text(
        "import torch\n"
        "name = '_linear_fp_act_4bit_weight'\n"
        "own = torch.library.Library('torchao', 'DEF')\n"
        "own.define(name + '(Tensor A, Tensor B, int group_size, Tensor S, Tensor Z) -> Tensor')\n"
        "own.impl(name, lambda A, B, group_size, S, Z: A * 0 + 7, 'CPU')\n"
        "import transforms.export.trace\n"
        "call = torch.ops.torchao._linear_fp_act_4bit_weight\n"
        "x, b, s = torch.ones(2, 32), torch.ones(5, 16, dtype=torch.uint8), torch.ones(5, 1)\n"
        "print(call(x, b, 32, s, s).sum().item())\n"
        "print(tuple(call(x.to('meta'), b.to('meta'), 32, s.to('meta'), s.to('meta')).shape))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "448.0\n(2, 5)\n"), done.stderr


def test_eager_is_the_definition() -> None:
    """Row by row and number by number, the CPU's kernel is what the layout says."""
    layer, rows = _Layer(), torch.randn(4, 128)
    expected = torch.zeros(4, 6, dtype=torch.float64)
    for m in range(4):
        for n in range(6):
            for k in range(128):
                scale = layer.weight_scales[n, k // _GROUP].double()
                zero = layer.weight_zeros[n, k // _GROUP].double()
                expected[m, n] += rows[m, k].double() * (int(layer.numbers[n, k]) * scale + zero)
    torch.testing.assert_close(layer(rows).double(), expected.relu(), rtol=1e-5, atol=1e-5)
