"""TransNet V2, which detects shot boundaries (Soucek and Lokoc 2020).

Names are those of its PyTorch checkpoint.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool3d, normalize, pad

_FILTERS = (16, 32, 64)
_DILATIONS = (1, 2, 4, 8)
_AROUND = 50  # frames before and after a frame that are compared with it
_WIDTH, _HIDDEN = 128, 1024
_PLACES = 3 * 6  # left by pooling of 27 rows and 48 columns
_EPSILON = 1e-3  # of batch norms


class _Dilated(nn.Module):
    """Convolutions over rows and columns, each followed by one over dilated time."""

    def __init__(self, taken: int, given: int) -> None:
        super().__init__()
        for n in _DILATIONS:
            space = nn.Conv3d(taken, 2 * given, (1, 3, 3), 1, (0, 1, 1), bias=False)
            time = nn.Conv3d(2 * given, given, (3, 1, 1), 1, (n, 0, 0), (n, 1, 1), bias=False)
            layers = nn.Sequential(space, time)
            self.add_module(f"Conv3D_{n}", nn.Sequential(OrderedDict(layers=layers)))
        self.bn = nn.BatchNorm3d(given * len(_DILATIONS), _EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.get_submodule(f"Conv3D_{n}")(x) for n in _DILATIONS]
        return torch.relu(self.bn(torch.cat(parts, 1)))


class _Stack(nn.Module):
    def __init__(self, taken: int, given: int) -> None:
        super().__init__()
        wide = given * len(_DILATIONS)
        self.DDCNN = nn.ModuleList([_Dilated(taken, given), _Dilated(wide, given)])

    def forward(self, x: Tensor) -> Tensor:
        first = self.DDCNN[0](x)
        return avg_pool3d(self.DDCNN[1](first) + first, (1, 2, 2))


class _Similarity(nn.Module):
    """Each frame's products with the frames around it, through a linear layer."""

    def __init__(self, projected: int = 0) -> None:
        super().__init__()
        if projected:
            self.projection = nn.Linear(projected, _WIDTH)
        self.fc = nn.Linear(2 * _AROUND + 1, _WIDTH)

    def forward(self, rows: Tensor) -> Tensor:
        rows = normalize(self.projection(rows) if hasattr(self, "projection") else rows, dim=2)
        count = rows.shape[1]
        padded = pad(rows @ rows.transpose(1, 2), (_AROUND, _AROUND))
        offsets = torch.arange(2 * _AROUND + 1) + torch.arange(count)[:, None]
        return torch.relu(self.fc(padded.gather(2, offsets.expand(len(rows), -1, -1))))


def _colours(frames: Tensor) -> Tensor:
    """Return histograms (1, n, 512) of 3-bit RGB colours in (1, n, high, wide, 3)."""
    high = (frames.flatten(2, 3) >> 5).to(torch.int64)
    binned = (high[..., 0] << 6) + (high[..., 1] << 3) + high[..., 2]
    empty = torch.zeros(*frames.shape[:2], 512)
    return empty.scatter_add(2, binned, torch.ones(binned.shape))


class TransNet(nn.Module):
    """Convolutions over space and dilated time, with similarities of frames and of colours."""

    def __init__(self) -> None:
        super().__init__()
        wide = [n * len(_DILATIONS) for n in _FILTERS]
        pairs = zip([3, *wide], _FILTERS, strict=False)
        self.SDDCNN = nn.ModuleList(_Stack(taken, given) for taken, given in pairs)
        self.frame_sim_layer = _Similarity(sum(wide))
        self.color_hist_layer = _Similarity()
        self.fc1 = nn.Linear(2 * _WIDTH + wide[-1] * _PLACES, _HIDDEN)
        self.cls_layer1 = nn.Linear(_HIDDEN, 1)
        self.cls_layer2 = nn.Linear(_HIDDEN, 1)

    def forward(self, frames: Tensor) -> Tensor:
        """Return the probability (1, n, 1) that a shot ends, for (1, n, 27, 48, 3) uint8 RGB."""
        x = frames.permute(0, 4, 1, 2, 3).float() / 255.0
        means = []
        for stack in self.SDDCNN:
            x = stack(x)
            means.append(x.mean((3, 4)))
        alike = self.frame_sim_layer(torch.cat(means, 1).transpose(1, 2))
        coloured = self.color_hist_layer(_colours(frames))
        features = torch.cat([coloured, alike, x.permute(0, 2, 3, 4, 1).flatten(2)], 2)
        return torch.sigmoid(self.cls_layer1(torch.relu(self.fc1(features))))
