"""Kernels behind the shims, through convert() and a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.pieces import assert_as_eager
from transforms import convert

if TYPE_CHECKING:
    from pathlib import Path


class _GroupedQueries(nn.Module):
    """Six heads of queries read two of keys: few queries, and enough that keys are packed."""

    def forward(self, few: torch.Tensor, many: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """(2, 6, 43, 8) of queries (2, 6, 3, 8) and (2, 6, 40, 8), and keys (2, 2, 9, 8)."""
        values = keys.tanh()
        found = [
            F.scaled_dot_product_attention(queries, keys, values, enable_gqa=True)
            for queries in (few, many)
        ]
        return torch.cat(found, 2)


class _ScatterWithoutAxes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x[0] with x[1] added to it, both without axes, and then to a list of one element."""
        place = torch.zeros((), dtype=torch.int64)
        sum_ = x[0].scatter_add(0, place, x[1])
        return x[:1].scatter_add(0, place[None], sum_[None])


CASES: dict[str, tuple[nn.Module, tuple[tuple[int, ...], ...]]] = {
    "grouped queries": (_GroupedQueries(), ((2, 6, 3, 8), (2, 6, 40, 8), (2, 2, 9, 8))),
    "scatter without axes": (_ScatterWithoutAxes(), ((2,),)),
}


@pytest.mark.parametrize("case", CASES)
def test_results_are_eagers(case: str, tmp_path: Path) -> None:
    """Values are eager's, at inputs that no golden case has."""
    torch.manual_seed(0)
    module, shapes = CASES[case]
    made = convert(
        module.eval(), tuple(torch.randn(s) for s in shapes), out=tmp_path / "out",
        measure_seconds=0,
    )  # fmt: skip
    inputs = [torch.randn(s) for s in shapes]
    assert_as_eager(made.folder, module, inputs, rtol=1e-5, atol=1e-6)
