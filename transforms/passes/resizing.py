"""Resize images as eager does, which copies an axis whose size the factor leaves unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp.decompositions import upsample_compute_output_size
from torch._prims_common import suggest_memory_format
from torch.fx.experimental.symbolic_shapes import statically_known_true

aten = torch.ops.aten


def resize_linearly(images: Tensor, size: Any, align_corners: bool, *scales: Any) -> Any:
    """Interpolate along each axis in turn, by a factor for each, or by the list of `.vec`."""
    sizes, factors = output_sizes(images, size, scales)
    axes = [*zip(images.shape[2:], sizes, factors, strict=True)]
    if not images.is_floating_point() or not any(
        is_kept(*axis) or _may_be_whole(*axis, (1,)) for axis in axes
    ):
        return NotImplemented
    kind = torch.promote_types(images.dtype, torch.float32)
    result = images.to(kind)
    for axis, (before, wanted, factor) in reversed([*enumerate(axes, 2)]):
        if is_kept(before, wanted, factor):
            continue
        index = torch.arange(wanted)
        if align_corners:
            place = index.to(kind) * ((before - 1.0) / torch.sym_max(wanted - 1, 1))  # type: ignore[no-untyped-call]
        else:
            place = (index.to(kind) + 0.5) * (1 / factor if factor else before / wanted) - 0.5
        place = place.to(kind).clamp(min=0)
        low = place.to(torch.int64).clamp(max=before - 1)
        high, share = (low + 1).clamp(max=before - 1), (place - low).clamp(0, 1)
        if isinstance(before, torch.SymInt):
            low, high = (torch.where(are_equal(before, wanted), index, at) for at in (low, high))
        first, last = (aten._unsafe_index(result, [*[None] * axis, at]) for at in (low, high))
        result = first + (last - first) * share.view(-1, *[1] * (images.dim() - 1 - axis))
    return result.to(images.dtype).contiguous(memory_format=suggest_memory_format(images))


def resize_to_nearest(images: Tensor, size: Any, *scales: Any) -> Any:
    """Repeat pixels; eager takes twice a size as a factor of 2, and an equal size as 1."""
    sizes, factors = output_sizes(images, size, scales)
    axes = [*zip(images.shape[2:], sizes, factors, strict=True)]
    if not all(factors) or not any(_may_be_whole(*axis, (1, 2)) for axis in axes):
        return NotImplemented
    places = []
    for before, wanted, factor in axes:
        index = torch.arange(wanted)
        place = (index.to(torch.float32) * (1 / factor)).to(torch.int64).clamp(max=before - 1)
        place = torch.where(are_equal(2 * before, wanted), index // 2, place)
        places.append(torch.where(are_equal(before, wanted), index, place))
    result = aten._unsafe_index(images, [None, None, places[0][:, None], places[1]])
    return result.contiguous(memory_format=suggest_memory_format(images))


def output_sizes(images: Tensor, size: Any, scales: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Return the result's sizes and the factor of each axis, None where it was not given."""
    if len(scales) == 1 and not isinstance(scales[0], int | float):
        size = upsample_compute_output_size(images.shape, size, *scales)  # type: ignore[no-untyped-call]
        scales = scales[0] or ()
    return size, [*scales, *[None] * (images.dim() - 2 - len(scales))]


def is_kept(size: Any, wanted: Any, factor: float | None) -> bool:
    """Return whether an axis is never resized, whatever its size."""
    return factor == 1 or statically_known_true(size == wanted)


def are_equal(size: Any, other: Any) -> Tensor:
    """Compare sizes when the program runs."""
    return torch.scalar_tensor(size, dtype=torch.int64).eq(other)


def _may_be_whole(size: Any, wanted: Any, factor: float | None, wholes: Sequence[int]) -> bool:
    """Return whether a fractional factor may make the size one of these multiples."""
    if factor is None or factor == int(factor):
        return False
    if isinstance(size, int):
        return wanted in [size * whole for whole in wholes]
    return 1 < factor < wholes[-1] + 1
