"""Silero's voice activity detector, with the sizes of its weights (silero-vad 6, MIT)."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn.functional import conv1d, pad

_WIDTH = 128
_BLOCKS = ((_WIDTH, 1), (64, 2), (64, 2), (_WIDTH, 1))  # channels, stride
_PIECES = 16  # a block of 32 ms has sixteen pieces of 2 ms; a transform takes eight


class _Basis(nn.Module):
    """A short-time Fourier transform by a convolution with windowed cosines and sines."""

    forward_basis_buffer: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("forward_basis_buffer", torch.randn(size + 2, 1, size) / size)

    def forward(self, samples: Tensor) -> Tensor:
        """Return magnitudes (1, size / 2 + 1, frames) of (1, n) samples, every size / 2 samples."""
        size = self.forward_basis_buffer.shape[-1]
        mirrored = pad(samples[:, None], (0, size // 4), "reflect")
        real, imaginary = conv1d(mirrored, self.forward_basis_buffer, stride=size // 2).chunk(2, 1)
        return torch.sqrt(real.square() + imaginary.square())


def _unit(taken: int, given: int, stride: int) -> nn.Module:
    layer = nn.Conv1d(taken, given, 3, stride, padding=1)
    return nn.Sequential(OrderedDict(reparam_conv=layer, relu=nn.ReLU()))


class SileroVad(nn.Module):
    """A detector of speech in blocks of 32 ms, at 8000 or 16000 Hz; its state is in buffers."""

    hidden: Tensor
    cell: Tensor
    context: Tensor

    def __init__(self, rate: int) -> None:
        super().__init__()
        size = rate // 1000 * _PIECES  # of the transform, half a block
        self.stft = _Basis(size)
        widths = [size // 2 + 1, *(width for width, _ in _BLOCKS)]
        self.encoder = nn.Sequential(
            *(_unit(n, w, s) for n, (w, s) in zip(widths, _BLOCKS, strict=False))
        )
        head = nn.Sequential(nn.Identity(), nn.ReLU(), nn.Conv1d(_WIDTH, 1, 1))
        self.decoder = nn.ModuleDict({"rnn": nn.LSTMCell(_WIDTH, _WIDTH), "decoder": head})
        for name, width in (("hidden", _WIDTH), ("cell", _WIDTH), ("context", size // 4)):
            self.register_buffer(name, torch.zeros(1, width), persistent=False)

    def forward(self, samples: Tensor) -> Tensor:
        """Return the probability (1, 1) of speech in the next (1, 32 ms) samples from -1 to 1."""
        heard = torch.cat([self.context, samples], 1)
        self.context.copy_(heard[:, -self.context.shape[1] :])
        features = self.encoder(self.stft(heard)).squeeze(-1)
        hidden, cell = self.decoder["rnn"](features, (self.hidden, self.cell))
        self.hidden.copy_(hidden)
        self.cell.copy_(cell)
        return torch.sigmoid(self.decoder["decoder"](hidden[:, :, None])).mean(2)


def silero_vad() -> nn.ModuleDict:
    """Return both detectors with untrained weights: parts `at_16000` and `at_8000`."""
    return nn.ModuleDict({f"at_{rate}": SileroVad(rate) for rate in (16_000, 8_000)})
