"""Reductions of 64-bit integers over rows that do not fill their last SIMD group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from tests.pieces import assert_as_eager
from transforms import convert

if TYPE_CHECKING:
    from pathlib import Path


class _Reductions(nn.Module):
    def forward(self, long: torch.Tensor, short: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Of rows (3, 1500), which take several stages, and (3, 40), which take two groups.

        A covariance counts its observations by a sum of constants.
        """
        return (
            long.argmax(-1), long.argmin(-1), long.amax(-1), long.amin(-1), long.sum(-1),
            short.argmax(-1), short[:, :7].amax(-1), short[:, :33].amin(-1), short.prod(-1),
            torch.cov(short.float()),
        )  # fmt: skip


def test_whole_numbers_of_either_sign_are_reduced_as_eager_does(tmp_path: Path) -> None:
    """Lanes that are not there give nothing: no 0 is the largest of negative numbers."""
    torch.manual_seed(0)
    inputs = torch.randint(-99, 99, (3, 1500)), torch.randint(1, 3, (3, 40))
    made = convert(_Reductions(), inputs, target="metal", out=tmp_path / "out", measure_seconds=0)
    signs = torch.randint(0, 2, (3, 40)) * 2 - 1
    calls = inputs, (-inputs[0].abs() - 1, -inputs[1]), (inputs[0], signs)
    assert_as_eager(made.folder, _Reductions(), *calls, rtol=1.3e-6, atol=1e-5)
