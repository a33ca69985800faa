"""EasyOCR's recogniser of text lines, its second generation (a CRNN: Shi, Bai and Yao 2015).

Names are those of its checkpoints.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

_WIDTH, _CLASSES = 256, 97
_GREY = (0.299, 0.587, 0.114)  # of ITU-R BT.601


def _convolution(taken: int, given: int, *, normed: bool = False) -> list[nn.Module]:
    layer = nn.Conv2d(taken, given, 3, padding=1, bias=not normed)
    return [layer, *([nn.BatchNorm2d(given)] if normed else []), nn.ReLU()]


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(_WIDTH, _WIDTH, bidirectional=True, batch_first=True)
        self.linear = nn.Linear(2 * _WIDTH, _WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(self.rnn(x)[0])
        return y


class TextLine(nn.Module):
    """Convolutions, two bidirectional LSTMs over columns, and scores of characters."""

    def __init__(self) -> None:
        super().__init__()
        layers = [
            *_convolution(1, 32), nn.MaxPool2d(2),
            *_convolution(32, 64), nn.MaxPool2d(2),
            *_convolution(64, 128), *_convolution(128, 128), nn.MaxPool2d((2, 1)),
            *_convolution(128, _WIDTH, normed=True), *_convolution(_WIDTH, _WIDTH, normed=True),
            nn.MaxPool2d((2, 1)), nn.Conv2d(_WIDTH, _WIDTH, 2), nn.ReLU(),
        ]  # fmt: skip
        self.FeatureExtraction = nn.ModuleDict({"ConvNet": nn.Sequential(*layers)})
        self.SequenceModeling = nn.Sequential(_Recurrent(), _Recurrent())
        self.Prediction = nn.Linear(_WIDTH, _CLASSES)

    def forward(self, picture: Tensor) -> Tensor:
        """Return logits (n, width / 4 - 1, 97) of (n, 64, width, 3) uint8 RGB."""
        grey = (picture.float() * torch.tensor(_GREY)).sum(-1).round()
        columns = self.FeatureExtraction["ConvNet"](grey[:, None] / 127.5 - 1.0)
        logits: Tensor = self.Prediction(self.SequenceModeling(columns.mean(2).transpose(1, 2)))
        return logits
