"""Numbers beside float16 are the ones that eager computes with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

from tests.pieces import assert_as_eager
from transforms import convert

if TYPE_CHECKING:
    from pathlib import Path


class _Thresholds(nn.Module):
    """Comparisons with 0.7, which no float16 is, and remainders by it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("held", torch.tensor(0.7))

    def forward(self, x: Tensor, level: Tensor, places: Tensor) -> tuple[Tensor, ...]:
        """By a constant, a buffer, an input without axes, a number, and integers."""
        made = torch.tensor(0.7)
        return (
            *(x > number for number in (made, self.held, level, 0.7)),
            *(number >= x for number in (made, self.held, level)),
            *(x == number for number in (made, self.held, level, 0.7, places)),
            *(torch.remainder(x, number) for number in (self.held, level, 0.7)),
            x - level,
            torch.where(x > 1, x, level),
            x * 0.7,
            x / level,
        )


@pytest.mark.parametrize("target", ["cpu", pytest.param("metal", marks=pytest.mark.sweep)])
def test_numbers_are_rounded_as_eager_does(target: str, tmp_path: Path) -> None:
    """On the very number, and on 2048, which 2049 is in float16; a GPU's factors are halves."""
    near = {"rtol": 1e-3 if target == "metal" else 0, "atol": 0}
    module, out = _Thresholds(), tmp_path / "out"
    example = torch.rand(8, 16).half(), torch.tensor(0.3), torch.arange(16)
    convert(module, example, target=target, out=out, measure_seconds=0)
    inputs = [torch.full((8, 16), 0.7).half(), torch.rand(8, 16).half()]
    inputs += [torch.full((8, 16), 2048.0).half()]
    calls = ((x, torch.tensor(0.7), torch.arange(2040, 2056)) for x in inputs)
    assert_as_eager(out, module, *calls, **near)
