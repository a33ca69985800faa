"""Kernels keep integers narrow, shift by any number of bits, and find the first of equals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from tests.pieces import assert_as_eager
from transforms import convert

if TYPE_CHECKING:
    from pathlib import Path


class _Integers(nn.Module):
    """Arithmetic of bytes that other operators read at once, shifts, and places in a long row."""

    def forward(
        self, u: torch.Tensor, a: torch.Tensor, i: torch.Tensor, s: torch.Tensor, x: torch.Tensor
    ) -> list[torch.Tensor]:
        bytes_ = [(u + 100).float(), (u - u.flip(0)) / 2, (~u).float(), (a * a) > 100]
        shifts = [i << s, i >> s, i.long() << s.long(), u >> s.to(torch.uint8)]
        places = [x.argmax(-1), x.argmin(-1), x.max(-1).indices, (2 * x.t()).argmax()]
        return [*bytes_, a.abs().float(), *shifts, *places, x.view(torch.int32)]


_EXAMPLE = {
    "u": torch.tensor([3, 20, 40, 60, 80], dtype=torch.uint8),
    "a": torch.tensor([-3, 2, 7, -9, 5], dtype=torch.int8),
    "i": torch.tensor([-300, 2, 70000, -9, 5], dtype=torch.int32),
    "s": torch.tensor([0, 1, 5, 2, 3], dtype=torch.int32),
    "x": torch.randn(2, 1100, generator=torch.Generator().manual_seed(0)),
}


@pytest.mark.parametrize("target", [pytest.param("cpu", marks=pytest.mark.sweep), "metal"])
def test_what_noise_does_not_show(target: str, tmp_path: Path) -> None:
    """Bytes wrap before a float is made of them, and lanes agree on the first of two maxima."""
    sizes = (*[None] * 4, {1: torch.export.Dim("n", min=2, max=2100)})
    module, inputs = _Integers().eval(), tuple(_EXAMPLE.values())
    bundle = convert(
        module, inputs, target=target, dynamic_shapes=sizes, out=tmp_path / "b", measure_seconds=0
    )
    ties = torch.zeros(2, 2100)
    ties[:, [1, 1024, 1030, 2049]] = torch.tensor([[1.0], [-1.0]])
    others = {
        "u": torch.tensor([0, 255, 200, 156, 1], dtype=torch.uint8),
        "a": torch.tensor([-128, 127, 16, -12, 0], dtype=torch.int8),
        "s": torch.tensor([32, -1, 31, 40, 33], dtype=torch.int32),
        "x": ties,
    }
    unknown = _EXAMPLE | {"x": torch.where(ties != 0, torch.nan, ties)}
    calls = ([*given.values()] for given in (_EXAMPLE | others, unknown))
    assert_as_eager(bundle.folder, module, *calls)
