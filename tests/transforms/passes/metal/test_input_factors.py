"""Factors of an image's channels are left to the convolution that reads it, where it takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from transforms import run_passes
from transforms.graph.schemas import bound_arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import Node

aten = torch.ops.aten
_X = torch.randn(2, 4, 5, 3)
_FACTOR = torch.rand(2, 4, 1, 1)


class Multiplied(nn.Module):
    """A convolution of a product of its inputs."""

    def __init__(self, layer: nn.Module, multiply: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.layer = layer
        self.multiply = multiply

    def forward(self, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        """The product, convolved."""
        result: torch.Tensor = self.layer(self.multiply(x, factor))
        return result


def _found(module: nn.Module, *inputs: torch.Tensor) -> tuple[Node, Node | None]:
    """The images that the fused convolution reads, and their factor."""
    program, _ = run_passes(torch.export.export(module.eval(), inputs), ["fuse_epilogues"])
    fused = torch.ops.menagerie.finished_convolution.default
    (convolution,) = [n for n in program.graph.nodes if n.target is fused]
    given = bound_arguments(convolution)
    return given["input"], given["factor"]


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("swapped", [False, True])
def test_factors_of_channels_are_found(images: int, *, swapped: bool) -> None:
    """Whichever operand they are, for each image or one for all."""

    def multiply(x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        return factor * x if swapped else x * factor

    read, factor = _found(Multiplied(nn.Conv2d(4, 6, 1), multiply), _X, _FACTOR[:images])
    assert (read.name, factor.name if factor else None) == ("x", "factor")


@pytest.mark.parametrize(
    ("layer", "factor"),
    [
        (nn.Conv2d(4, 6, 3), _FACTOR),
        (nn.Conv2d(4, 6, 1, stride=2), _FACTOR),
        (nn.Conv2d(4, 6, 1, padding=1), _FACTOR),
        (nn.Conv2d(4, 6, 1, groups=2), _FACTOR),
        (nn.Conv2d(4, 6, 1), torch.rand(2, 4, 5, 1)),
        (nn.Conv2d(4, 6, 1), torch.rand(2, 1, 1, 1)),
        (nn.Conv2d(4, 6, 1), torch.rand(4, 1, 1)),
    ],
)
def test_other_products_stay(layer: nn.Module, factor: torch.Tensor) -> None:
    """A window reads elements several times; other factors are not of channels alone."""
    read, found = _found(Multiplied(layer, torch.mul), _X, factor)
    assert (read.target, found) == (aten.mul.Tensor, None)


class _Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(4, 6, 1)

    def forward(self, x: torch.Tensor, factor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        product = x * factor
        return self.layer(product), product


def test_a_product_that_others_read_stays() -> None:
    """It must be made anyway."""
    assert _found(_Shared(), _X, _FACTOR)[1] is None
