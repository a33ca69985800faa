"""What Inductor leaves to kernels that join and write by lists: on the CPU, eager's numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.pieces import run_piece

_DTYPES = (torch.uint8, torch.int8, torch.bool, torch.int16, torch.int32, torch.int64)


class _Joined(nn.Module):
    """Images and matrices of each dtype joined, with a shorter part in the middle."""

    def forward(self, *parts: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.cat([x, x[:, :1], x], 1) for x in parts)


class _Masked(nn.Module):
    """As many values as a mask has places are written, or added, in order."""

    def forward(
        self, x: torch.Tensor, mask: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        stored = torch.ops.aten.index_put(x, [mask], values)
        rows = torch.ops.aten.index_put(x.T, [None, mask[:, 0]], values[:1], True)
        return stored, rows * 2


def _check(module: nn.Module, *inputs: torch.Tensor, target: str) -> None:
    with torch.no_grad():
        program = torch.export.export(module, inputs, strict=False).run_decompositions({})
        expected = module(*inputs)
    results = run_piece(program, inputs, target=target)
    for result, value in zip(results, expected, strict=True):
        torch.testing.assert_close(result, value)


def test_whole_numbers_and_masks_are_joined() -> None:
    """Each dtype's elements are where eager puts them; bytes Inductor leaves to a kernel."""
    generator = torch.Generator().manual_seed(0)
    images = [torch.randint(0, 2, (2, 3, 4, 4), generator=generator).to(d) for d in _DTYPES]
    matrices = [torch.randint(0, 100, (3, 40), generator=generator).to(d) for d in _DTYPES]
    _check(_Joined(), *images, *matrices, target="cpu")


@pytest.mark.parametrize("target", [pytest.param("cpu", marks=pytest.mark.sweep), "metal"])
def test_places_of_a_mask_are_written(target: str) -> None:
    """The input itself stays as it is: what is written to is a copy."""
    x = torch.arange(20.0).reshape(4, 5)
    mask = torch.tensor([[True, False, True, True, False]]).expand(4, 5).clone()
    _check(_Masked(), x, mask, -torch.arange(12.0), target=target)
    assert torch.equal(x, torch.arange(20.0).reshape(4, 5))
