"""Modules, weights and buffers may have names that no language allows for its variables."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from transforms import run_passes
from transforms.bisect.piece import run_piece


class _Dashes(nn.Module):
    """As RegNet names its blocks; two names are one where only letters count."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential()
        for name in ("block1-0", "block1_0"):
            self.blocks.add_module(name, nn.Conv2d(3, 3, 3, bias=False))
            self.blocks.add_module(f"{name}-norm", nn.BatchNorm2d(3))
        self.register_buffer("a-scale", torch.tensor([2.0, 3, 4, 5]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(2, 3, 8, 8) to (2, 3, 4, 4)."""
        y: torch.Tensor = self.blocks(x)
        return y * self.get_buffer("a-scale")


@pytest.mark.parametrize("target", ["cpu", "metal"])
def test_names_with_dashes(target: str) -> None:
    """Through every pass, lowered and run: eager's numbers."""
    torch.manual_seed(2)
    module, x = _Dashes().eval(), torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        program = torch.export.export(module, (x,), strict=False).run_decompositions({})
        expected = module(x)
    prepared, _ = run_passes(program, target=target)
    [result] = run_piece(prepared, [x], target=target)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
