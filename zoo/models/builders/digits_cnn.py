"""A small convolutional network for 8x8 digits."""

from __future__ import annotations

from torch import Tensor, nn

_CLASSES = 10


class DigitsCnn(nn.Module):
    """Three convolutions, each with batch norm, then global average pooling and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *_unit(1, 16), *_unit(16, 32), nn.MaxPool2d(2), *_unit(32, 64), nn.AdaptiveAvgPool2d(1)
        )
        self.classifier = nn.Linear(64, _CLASSES)

    def forward(self, image: Tensor) -> Tensor:
        """Return logits of the digits (batch, 10) for grey values from 0 to 1 (batch, 1, 8, 8)."""
        logits: Tensor = self.classifier(self.features(image).flatten(1))
        return logits


def digits_cnn() -> DigitsCnn:
    """Return the network with untrained weights."""
    return DigitsCnn()


def _unit(channels_in: int, channels_out: int) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(channels_in, channels_out, 3, padding=1),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(),
    )
