"""Results that are views of views, through convert() and a session on each target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from tests.pieces import assert_as_eager
from transforms import convert

if TYPE_CHECKING:
    from pathlib import Path


class _Rows(nn.Module):
    """Rows that are computed where their concatenation is stored, and returned with it."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(3, 3), (3,) and (2, 2) of an input (3, 1, 3)."""
        a = torch.tanh(x[:1])
        b = torch.tanh(x[1:2] + self.line(a))
        c = torch.tanh(x[2:] + self.line(b))
        return torch.cat([a, b, c]).squeeze(1), b.squeeze(0).squeeze(0), torch.cat([b, c])[:, 0, 1:]


@pytest.mark.parametrize("target", ["cpu", pytest.param("metal", marks=pytest.mark.sweep)])
def test_a_view_of_a_view_has_both_offsets(target: str, tmp_path: Path) -> None:
    """Each result is eager's, at inputs that no golden case has."""
    torch.manual_seed(0)
    module = _Rows().eval()
    made = convert(module, (torch.randn(3, 1, 3),), target=target, out=tmp_path / "out",
                   measure_seconds=0)  # fmt: skip
    assert_as_eager(made.folder, module, (torch.randn(3, 1, 3),), rtol=1e-7, atol=1e-6)
