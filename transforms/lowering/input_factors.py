"""Factors of an image's channels, as squeeze-and-excitation has them, which convolutions apply."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from transforms.graph.aliasing import is_written_between
from transforms.graph.editor import fake_value
from transforms.graph.guards import surely_equal
from transforms.graph.schemas import bound_arguments

if TYPE_CHECKING:
    from torch.fx import Node

__all__ = ["input_and_factor"]

aten = torch.ops.aten
_IMAGE = 4  # axes


def input_and_factor(convolution: Node) -> tuple[Node, Node | None]:
    """What a convolution reads, and the factor of each of its channels, or none.

    Only a pointwise convolution takes factors: it reads each element about once, and so each is
    multiplied about once. The images themselves are then never written multiplied.

    Args:
        convolution: a call of one of torch's convolutions.

    Returns:
        The images (N, C, H, W), and the factor (N or 1, C, 1, 1) that they are multiplied by.
    """
    given = bound_arguments(convolution)
    product: Node = given["input"]
    if product.target is not aten.mul.Tensor or not _is_pointwise(convolution):
        return product, None
    if set(product.users) != {convolution} or is_written_between(product, convolution):
        return product, None
    factors = bound_arguments(product)
    for images, factor in (
        (factors["self"], factors["other"]),
        (factors["other"], factors["self"]),
    ):
        if _is_of_channels(factor, images):
            return images, factor
    return product, None


def _is_pointwise(convolution: Node) -> bool:
    given = bound_arguments(convolution)
    weight = fake_value(given["weight"])
    plain = (given["stride"], given["padding"], given["groups"]) == ([1, 1], [0, 0], 1)
    return plain and weight.dim() == _IMAGE and tuple(weight.shape[2:]) == (1, 1)


def _is_of_channels(factor: Node | float, images: Node | float) -> bool:
    if not isinstance(factor, torch.fx.Node) or not isinstance(images, torch.fx.Node):
        return False
    of_channels, of_images = fake_value(factor), fake_value(images)
    if of_channels.dim() != _IMAGE or of_images.dim() != _IMAGE:
        return False
    batch, channels, *window = of_channels.shape
    return bool(
        of_channels.dtype == of_images.dtype
        and surely_equal(window, (1, 1))
        and surely_equal([channels], [of_images.shape[1]])
        and (surely_equal([batch], [1]) or surely_equal([batch], [of_images.shape[0]]))
        and not surely_equal(of_images.shape[2:], window)
    )
