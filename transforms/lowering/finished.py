"""The operators of products and convolutions with what follows them, which Metal's runtime has.

Their bodies are `runtime/metal/finished.cpp`; here they are only declared, so that a program can
call them while it is lowered. Nothing computes them on another device.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import torch

from transforms.lowering.own_operators import declare

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = ["MOST_STEPS", "Step", "finished_operators"]

MOST_STEPS = 4  # runtime/metal/finish.h

_STEPS = "int[] steps, float[] low, float[] high, Tensor? other"
_PRODUCT = f"finished_product(Tensor a, Tensor b, Tensor? bias, {_STEPS}) -> Tensor"
_CONVOLUTION = (
    "finished_convolution(Tensor input, Tensor? factor, Tensor weight, Tensor? bias, int[] stride,"
    f" int[] padding, int[] dilation, int groups, {_STEPS}) -> Tensor"
)


class Step(enum.IntEnum):
    """What is done to each element x, with its numbers `low` and `high`.

    Numbered as in runtime/metal/kernels/finish.h, which says what each computes.
    """

    RELU = 0
    LEAKY_RELU = 1  # low: the slope below nought
    CLAMP = 2  # from low to high
    GELU = 3
    GELU_TANH = 4
    SILU = 5
    SIGMOID = 6
    TANH = 7
    HARDSWISH = 8
    HARDSIGMOID = 9
    AFFINE = 10  # x low + high
    ADD = 11  # x + low other
    MULTIPLY = 12  # x other


def _product_shape(a: Tensor, b: Tensor, *_: object) -> Tensor:
    return a.new_empty((*a.shape[:-1], b.shape[-1]))


def _convolution_shape(  # noqa: PLR0917
    input: Tensor,  # noqa: A002
    _factor: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    *_: object,
) -> Tensor:
    plain = torch.ops.aten.convolution.default(
        input, weight, bias, stride, padding, dilation, False, [0] * len(stride), groups
    )
    return input.new_empty(plain.shape)


def finished_operators() -> None:
    """Declare `menagerie::finished_product` and `finished_convolution` for the process."""
    declare(_PRODUCT, _product_shape)
    declare(_CONVOLUTION, _convolution_shape)
