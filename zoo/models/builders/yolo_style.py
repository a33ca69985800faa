"""A one-stage detector in the style of the YOLO family, with its characteristic constructs.

It has split/concatenate blocks, fast spatial pyramid pooling, a path-aggregation neck with nearest
upsampling, a decoupled anchor-free head, and box sides as expectations over bins (the distribution
focal loss head of Li et al., 2020). It was written for the zoo and has no trained weights.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["YoloStyle", "yolo_style"]

_STRIDES = (8, 16, 32)  # pixels per cell of the head's three maps


class ConvUnit(nn.Sequential):
    """A bias-free convolution, batch norm and SiLU; stride 1 preserves the size."""

    def __init__(
        self, channels_in: int, channels_out: int, kernel: int = 1, stride: int = 1
    ) -> None:
        super().__init__(
            nn.Conv2d(channels_in, channels_out, kernel, stride, kernel // 2, bias=False),
            nn.BatchNorm2d(channels_out, eps=1e-3),
            nn.SiLU(),
        )


class Bottleneck(nn.Module):
    """Two 3x3 units, with or without a shortcut around them."""

    def __init__(self, channels: int, *, shortcut: bool) -> None:
        super().__init__()
        self.units = nn.Sequential(ConvUnit(channels, channels, 3), ConvUnit(channels, channels, 3))
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.units(x)
        return x + y if self.shortcut else y


class SplitBlock(nn.Module):
    """A block that splits the channels, refines one half stepwise, and concatenates all stages."""

    def __init__(
        self, channels_in: int, channels_out: int, repeats: int, *, shortcut: bool
    ) -> None:
        super().__init__()
        half = channels_out // 2
        self.enter = ConvUnit(channels_in, 2 * half)
        self.steps = nn.ModuleList(Bottleneck(half, shortcut=shortcut) for _ in range(repeats))
        self.leave = ConvUnit((2 + repeats) * half, channels_out)

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.enter(x).chunk(2, dim=1))
        for step in self.steps:
            parts.append(step(parts[-1]))
        joined: Tensor = self.leave(torch.cat(parts, dim=1))
        return joined


class PyramidPooling(nn.Module):
    """Three 5x5 maximum poolings in sequence, concatenated with their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.enter = ConvUnit(channels, channels // 2)
        self.pool = nn.MaxPool2d(5, stride=1, padding=2)
        self.leave = ConvUnit(2 * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.enter(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        joined: Tensor = self.leave(torch.cat(parts, dim=1))
        return joined


class Backbone(nn.Module):
    """Feature maps at strides 8, 16 and 32 with 4, 8 and 16 times `width` channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        w = width
        self.to_8 = nn.Sequential(
            ConvUnit(3, w, 3, 2),
            ConvUnit(w, 2 * w, 3, 2),
            SplitBlock(2 * w, 2 * w, 1, shortcut=True),
            ConvUnit(2 * w, 4 * w, 3, 2),
            SplitBlock(4 * w, 4 * w, 2, shortcut=True),
        )
        self.to_16 = nn.Sequential(
            ConvUnit(4 * w, 8 * w, 3, 2), SplitBlock(8 * w, 8 * w, 2, shortcut=True)
        )
        self.to_32 = nn.Sequential(
            ConvUnit(8 * w, 16 * w, 3, 2),
            SplitBlock(16 * w, 16 * w, 1, shortcut=True),
            PyramidPooling(16 * w),
        )

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        at_8 = self.to_8(image)
        at_16 = self.to_16(at_8)
        return at_8, at_16, self.to_32(at_16)


class Neck(nn.Module):
    """Path aggregation: coarse maps refine finer ones, which then refine the coarse ones."""

    def __init__(self, width: int) -> None:
        super().__init__()
        w = width
        self.upsample = nn.Upsample(scale_factor=2, mode="nearest")
        self.up_16 = SplitBlock(24 * w, 8 * w, 1, shortcut=False)
        self.up_8 = SplitBlock(12 * w, 4 * w, 1, shortcut=False)
        self.shrink_8 = ConvUnit(4 * w, 4 * w, 3, 2)
        self.down_16 = SplitBlock(12 * w, 8 * w, 1, shortcut=False)
        self.shrink_16 = ConvUnit(8 * w, 8 * w, 3, 2)
        self.down_32 = SplitBlock(24 * w, 16 * w, 1, shortcut=False)

    def forward(self, at_8: Tensor, at_16: Tensor, at_32: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        middle = self.up_16(torch.cat((self.upsample(at_32), at_16), dim=1))
        fine = self.up_8(torch.cat((self.upsample(middle), at_8), dim=1))
        middle = self.down_16(torch.cat((self.shrink_8(fine), middle), dim=1))
        coarse = self.down_32(torch.cat((self.shrink_16(middle), at_32), dim=1))
        return fine, middle, coarse


class Head(nn.Module):
    """Separate branches on one map for the four sides' bins and for the classes."""

    def __init__(self, channels: int, hidden: int, bins: int, classes: int) -> None:
        super().__init__()
        self.sides, self.classes = (
            nn.Sequential(
                ConvUnit(channels, hidden, 3),
                ConvUnit(hidden, hidden, 3),
                nn.Conv2d(hidden, results, 1),
            )
            for results in (4 * bins, classes)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.sides(x).flatten(2), self.classes(x).flatten(2)


class YoloStyle(nn.Module):
    """The detector for `classes` classes.

    `width` is the first map's; all others are multiples of it. `bins` is the number of bins for the
    distance of a box's side from its cell, in cells.
    """

    bin_values: Tensor

    def __init__(self, classes: int, width: int, bins: int) -> None:
        super().__init__()
        self.backbone = Backbone(width)
        self.neck = Neck(width)
        hidden = max(4 * width, 4 * bins)
        self.heads = nn.ModuleList(
            Head(factor * width, hidden, bins, classes) for factor in (4, 8, 16)
        )
        self.register_buffer("bin_values", torch.arange(bins, dtype=torch.float32))

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        """Detect boxes in (batch, 3, height, width), multiples of 32, without suppression.

        Return `boxes` (batch, cells, 4), which are left, top, right and bottom in pixels, and
        `scores` (batch, cells, classes) from 0 to 1.
        """
        maps = self.neck(*self.backbone(image))
        sides, scores = zip(
            *(head(m) for head, m in zip(self.heads, maps, strict=True)), strict=True
        )
        boxes = self._boxes(torch.cat(sides, dim=2), maps)
        return {"boxes": boxes, "scores": torch.cat(scores, dim=2).sigmoid().transpose(1, 2)}

    def _boxes(self, sides: Tensor, maps: tuple[Tensor, ...]) -> Tensor:
        """Return box corners from their sides' bins (batch, 4 * bins, cells)."""
        batch, _, cells = sides.shape
        chances = sides.view(batch, 4, -1, cells).softmax(dim=2)
        distance = (chances * self.bin_values.view(1, 1, -1, 1)).sum(dim=2)
        centres, strides = _cells(maps)
        to_left_top, to_right_bottom = torch.chunk(distance, 2, dim=1)
        corners = torch.cat((centres - to_left_top, centres + to_right_bottom), dim=1)
        return (corners * strides).transpose(1, 2)


def yolo_style(classes: int = 80, width: int = 16, bins: int = 16) -> YoloStyle:
    """Return the detector with untrained weights, by default of 3 million parameters."""
    return YoloStyle(classes, width, bins)


def _cells(maps: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Return centres (2, cells) in units of cells, x first, and pixels per cell (1, cells)."""
    centres, strides = [], []
    for values, stride in zip(maps, _STRIDES, strict=True):
        height, width = values.shape[2:]
        y = torch.arange(height, dtype=values.dtype) + 0.5
        x = torch.arange(width, dtype=values.dtype) + 0.5
        rows, columns = torch.meshgrid(y, x, indexing="ij")
        centres.append(torch.stack((columns.flatten(), rows.flatten())))
        strides.append(torch.full((1, height * width), float(stride), dtype=values.dtype))
    return torch.cat(centres, dim=1), torch.cat(strides, dim=1)
