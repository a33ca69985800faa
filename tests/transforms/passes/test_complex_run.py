"""Artifacts with complex numbers equal eager for numbers of any size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

import menagerie
from transforms import convert

if TYPE_CHECKING:
    from pathlib import Path


class _Complex(nn.Module):
    """Magnitudes and quotients, and real tensors that meet complex numbers of Python."""

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        z = torch.complex(x, x.flip(0))
        scaled = [z / (z + 1), 1 / (z + 2), x / (1 + 2j), x * 2j, 1j - x]
        scaled += [torch.complex(x, x * 0 + 1) + torch.complex(x * 0 + 1, x.flip(1))]
        return [z.abs(), torch.exp(1j * x).real, *map(torch.view_as_real, scaled)]


def test_complex_numbers_equal_eager_at_every_size(tmp_path: Path) -> None:
    """A magnitude of 1e-25 is not 0, a quotient near 1e25 is a number, NaN spreads as in eager."""
    torch.manual_seed(0)
    module, x = _Complex().eval(), torch.randn(3, 10)
    bundle = convert(module, (x,), out=tmp_path / "complex", measure_seconds=0)
    with menagerie.open(bundle.folder) as session:
        for given in (x, x * 1e-25, x * 1e25, torch.where(x > 1, torch.nan, x)):
            results = session.run({"x": given.numpy()}).values()
            for expected, result in zip(module(given), results, strict=True):
                made, scale = torch.from_numpy(result), expected.nan_to_num(0, 0, 0).abs().max()
                torch.testing.assert_close(
                    made, expected, rtol=1e-4, atol=1e-5 * scale.item(), equal_nan=True
                )
