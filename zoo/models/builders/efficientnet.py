"""EfficientNet-Lite0 (Tan, "Higher accuracy on vision models with EfficientNet-Lite", 2020).

It is EfficientNet-B0 (Tan and Le 2019, table 1) without squeeze-and-excitation and with ReLU6.
Padding is TensorFlow's SAME: an odd pixel goes to the right and the bottom. Names are those of the
checkpoints of lukemelas/EfficientNet-PyTorch.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import pad, relu6

_EPSILON = 1e-3  # of batch norms
_STEM, _HEAD = 32, 1280
# Expansion, kernel, stride, width and number of blocks
_STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)


class _Same(nn.Conv2d):
    """A convolution whose output has ceil(size / stride) rows and columns."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - nn.Conv2d's name
        kernel, stride = self.kernel_size[0], self.stride[0]
        high, wide = (max((-(-n // stride) - 1) * stride + kernel - n, 0) for n in input.shape[-2:])
        spare = (wide // 2, wide - wide // 2, high // 2, high - high // 2)
        return super().forward(pad(input, spare) if any(spare) else input)


class _Block(nn.Module):
    """An inverted bottleneck: expand, depthwise convolution, project; a shortcut if shapes fit."""

    def __init__(self, taken: int, given: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        wide = taken * expansion
        self._expands = expansion > 1
        if self._expands:
            self._expand_conv = _Same(taken, wide, 1, bias=False)
            self._bn0 = nn.BatchNorm2d(wide, _EPSILON)
        self._depthwise_conv = _Same(wide, wide, kernel, stride, groups=wide, bias=False)
        self._bn1 = nn.BatchNorm2d(wide, _EPSILON)
        self._project_conv = _Same(wide, given, 1, bias=False)
        self._bn2 = nn.BatchNorm2d(given, _EPSILON)
        self._shortcut = stride == 1 and taken == given

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = relu6(self._bn0(self._expand_conv(x))) if self._expands else x
        y = relu6(self._bn1(self._depthwise_conv(y)))
        y = self._bn2(self._project_conv(y))
        return x + y if self._shortcut else y


class EfficientNetLite(nn.Module):
    """EfficientNet-Lite0 for 1000 classes."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem = _Same(3, _STEM, 3, 2, bias=False)
        self._bn0 = nn.BatchNorm2d(_STEM, _EPSILON)
        blocks, taken = [], _STEM
        for expansion, kernel, stride, width, count in _STAGES:
            for number in range(count):
                blocks.append(_Block(taken, width, expansion, kernel, 1 if number else stride))
                taken = width
        self._blocks = nn.Sequential(*blocks)
        self._conv_head = _Same(taken, _HEAD, 1, bias=False)
        self._bn1 = nn.BatchNorm2d(_HEAD, _EPSILON)
        self._fc = nn.Linear(_HEAD, 1000)

    def forward(self, picture: Tensor) -> Tensor:
        """Return logits (n, 1000) of (n, 3, 224, 224): (RGB - 127/255) / (128/255)."""
        x = self._blocks(relu6(self._bn0(self._conv_stem(picture))))
        x = relu6(self._bn1(self._conv_head(x)))
        logits: Tensor = self._fc(x.mean((2, 3)))
        return logits
