"""Use of torchvision without its compiled part.

The binary may not match the installed torch: a CUDA build of torchvision beside a CPU build of
torch fails on import, and transformers imports it if it is present. If it matches, export would
see its operators, for which no target has kernels. So they are declared here, with torchvision's
arguments (torchvision/csrc/ops), and implemented in PyTorch: slower than the binary, with the same
numbers. Sampling uses operators that targets have, so that export sees those; box suppression
depends on data, and stays an operator of the runtime. Operators that no current model calls
(`roi_pool` and the position-sensitive pools of R-FCN) are declared without a kernel.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor, nn

# Modules whose functions check whether operators are available; each one imports the check.
_ASKING = ("torchvision.extension", "torchvision.ops.roi_align")
_POOLS = {  # their last arguments
    "roi_pool": "int height, int width",
    "ps_roi_pool": "int height, int width",
    "ps_roi_align": "int height, int width, int sampling_ratio",
}
_load = torch.ops.load_library


@contextmanager
def torchvision_operators() -> Iterator[None]:
    """Make torchvision and its dependents importable in the block; they also work after it."""
    library = _library()
    with patch.object(torch.ops, "load_library", _load_but_torchvisions):
        yield
    for name in _ASKING if library is not None else ():
        if name in sys.modules:
            vars(sys.modules[name])["_has_ops"] = lambda: True


@functools.cache
def _library() -> torch.library.Library | None:
    """Return the library that holds the declarations; None if the binary is loaded."""
    if hasattr(torch.ops.torchvision, "nms"):  # somebody imported torchvision before us
        return None
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    composites: dict[str, Callable[..., object]] = {
        "roi_align": align_regions,
        "deform_conv2d": deformed_convolution,
    }
    for name, pooled in _POOLS.items():
        schema = f"{name}(Tensor input, Tensor rois, float scale, {pooled}) -> (Tensor, Tensor)"
        library.define(schema)  # type: ignore[no-untyped-call]
    bodies = {"nms": suppress_boxes, "qnms": suppress_boxes, **composites}
    for name, body in bodies.items():
        library.define(name + torch.library.infer_schema(body, mutates_args=()))  # type: ignore[no-untyped-call]
    library.impl("nms", suppress_boxes, "CPU")  # type: ignore[no-untyped-call]
    for name, body in composites.items():
        library.impl(name, body, "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
    return library


def _load_but_torchvisions(path: str | Path) -> None:
    """Load a library as torch does, except torchvision's binary, which is not needed."""
    if Path(path).name.startswith("_C") and "torchvision" in Path(path).parts:
        raise OSError(f"{path}: not needed")
    _load(path)  # type: ignore[no-untyped-call]


def suppress_boxes(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Return indices of boxes (N, 4) that overlap no better box beyond the threshold.

    Overlap is the intersection's area over the union's; the best boxes come first.
    """
    areas = (dets[:, 2] - dets[:, 0]) * (dets[:, 3] - dets[:, 1])
    left = scores.argsort(descending=True, stable=True)
    kept = []
    while len(left):
        best, left = left[0], left[1:]
        kept.append(best)
        low = torch.maximum(dets[best, :2], dets[left, :2])
        high = torch.minimum(dets[best, 2:], dets[left, 2:])
        shared = (high - low).clamp(min=0).prod(1)
        left = left[shared <= iou_threshold * (areas[best] + areas[left] - shared)]
    return torch.stack(kept) if kept else left


def align_regions(  # noqa: PLR0917 (torchvision's order)
    input: Tensor,  # noqa: A002
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Return a pooled map of each region (K, 5: image, x and y of two corners) of (N, C, H, W).

    Each of the (K, C, pooled_height, pooled_width) values is the mean of `sampling_ratio` squared
    samples, interpolated bilinearly; a sample more than a pixel outside counts as 0. Raise
    NotImplementedError if the number of samples depends on the regions' sizes.
    """
    if sampling_ratio <= 0:
        raise NotImplementedError(
            "torchvision::roi_align with sampling_ratio <= 0: the number of samples depends on "
            "data. Give a sampling_ratio above 0, e.g. 2"
        )
    height, width = input.shape[2:]
    corners = rois[:, 1:] * spatial_scale - (0.5 if aligned else 0.0)
    size = corners[:, 2:] - corners[:, :2]
    size = size if aligned else size.clamp(min=1)
    image = rois[:, 0].long()[:, None, None]

    def axis(which: int, pooled: int, limit: int) -> tuple[Tensor, Tensor]:
        steps = (torch.arange(pooled * sampling_ratio, device=rois.device) + 0.5) / sampling_ratio
        at = corners[:, which, None] + steps.to(rois.dtype) * (size[:, which, None] / pooled)
        inside = (at >= -1) & (at <= limit)
        return at.clamp(0, limit - 1), inside

    y, y_inside = axis(1, pooled_height, height)
    x, x_inside = axis(0, pooled_width, width)
    pixels = input.permute(0, 2, 3, 1)
    total = input.new_zeros(())
    for rows, by_row in _neighbours(y, height):
        for columns, by_column in _neighbours(x, width):
            weight = (by_row * y_inside)[:, :, None] * (by_column * x_inside)[:, None, :]
            taken = pixels[image, rows[:, :, None], columns[:, None, :]]
            total = total + taken * weight[..., None].to(input.dtype)
    samples = total.permute(0, 3, 1, 2)  # K, C, pooled_height * ratio, pooled_width * ratio
    return nn.functional.avg_pool2d(samples, sampling_ratio)


def _neighbours(at: Tensor, limit: int) -> list[tuple[Tensor, Tensor]]:
    """Return the two pixels around each position, and their weights."""
    low = at.floor()
    after = at - low
    first = low.long()
    return [(first, 1 - after), ((first + 1).clamp(max=limit - 1), after)]


def deformed_convolution(  # noqa: PLR0917 (torchvision's order)
    input: Tensor,  # noqa: A002
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Tensor:
    """Convolve (N, C, H, W) with taps whose positions `offset` shifts.

    `offset` is (N, offset_groups * taps * 2, H', W'), y before x. Pixels are read bilinearly, as 0
    outside. `mask`, (N, offset_groups * taps, H', W'), scales the taps.
    """
    batch, channels, height, width = input.shape
    kernel = weight.shape[2:]
    taps, (out_h, out_w) = kernel[0] * kernel[1], offset.shape[2:]

    def places(axis: int, out: int, stride: int, pad: int, dilation: int) -> Tensor:
        """Return the position of every tap at every output, along one axis: (taps, out)."""
        along = torch.arange(kernel[axis], device=input.device) * dilation
        by_tap = along.repeat_interleave(kernel[1]) if axis == 0 else along.repeat(kernel[0])
        return by_tap[:, None] + torch.arange(out, device=input.device) * stride - pad

    moved = offset.reshape(batch * offset_groups, taps, 2, out_h, out_w)
    y = moved[:, :, 0] + places(0, out_h, stride_h, pad_h, dilation_h)[:, :, None]
    x = moved[:, :, 1] + places(1, out_w, stride_w, pad_w, dilation_w)[:, None, :]
    grid = torch.stack([(2 * x + 1) / width - 1, (2 * y + 1) / height - 1], -1)
    maps = input.reshape(batch * offset_groups, channels // offset_groups, height, width)
    taken = nn.functional.grid_sample(maps, grid.flatten(1, 2), align_corners=False)
    taken = taken.reshape(batch, offset_groups, -1, taps, out_h * out_w)
    if use_mask:
        taken = taken * mask.reshape(batch, offset_groups, 1, taps, out_h * out_w)
    columns = taken.reshape(batch, groups, -1, out_h * out_w)
    rows = weight.reshape(groups, weight.shape[0] // groups, -1)
    return (rows @ columns).reshape(batch, -1, out_h, out_w) + bias[:, None, None]
