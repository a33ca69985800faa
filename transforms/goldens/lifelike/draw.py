"""Tensors of a content, in the range of values that a program is known to take."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from transforms.goldens.lifelike.content import Content
from transforms.goldens.lifelike.picture import picture
from transforms.goldens.lifelike.voice import LOUDNESS, voice

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Values", "draw"]

_HOP = 160  # samples a frame of features
_STEPS = 2.0**12  # of a feature's unit: coarser than what float64 leaves to a processor


@dataclass(frozen=True)
class Values:
    """Mean, deviation and ends of the values that an input takes."""

    mean: float
    deviation: float
    low: float = -math.inf
    high: float = math.inf

    def of(self, standard: torch.Tensor) -> torch.Tensor:
        """Values of mean 0 and deviation 1 moved there."""
        return (standard * self.deviation + self.mean).clamp(self.low, self.high)


def draw(content: Content, shape: Sequence[int], values: Values, *, seed: str) -> torch.Tensor:
    """An input like pictures or speech.

    Args:
        content: what it holds.
        shape: as `Content` says.
        values: pictures and samples lie there; features are what a front end makes of speech.
        seed: the same gives the same tensor.

    Returns:
        float32.
    """
    digest = hashlib.sha256(f"lifelike {seed}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:6], "big"))
    rows = shape[0] if len(shape) > 1 else 1
    drawn = torch.stack([_row(content, shape, values, generator) for _ in range(rows)])
    return drawn.reshape(tuple(shape)).float()


def _row(
    content: Content, shape: Sequence[int], values: Values, generator: torch.Generator
) -> torch.Tensor:
    match content:
        case Content.PICTURE:
            return values.of(picture(shape[1], shape[2], shape[3], generator))
        case Content.SAMPLES:
            return values.of(voice(shape[-1], generator) / LOUDNESS)
        case Content.FRAMES:
            return _frames(shape[1], shape[2], generator)
        case Content.BINS:
            return _bins(shape[1], shape[2], generator)


def _frames(frames: int, bins: int, generator: torch.Generator) -> torch.Tensor:
    """(frames, bins) as Parakeet's front end makes them."""
    from zoo.models.builders.parakeet import LogMel

    sound = voice(frames * _HOP, generator)[None]
    features, _ = LogMel(bins).double()(sound, torch.tensor([sound.shape[1]]))
    return _rounded(features[0])


def _bins(bins: int, frames: int, generator: torch.Generator) -> torch.Tensor:
    """(bins, frames) as Whisper's front end makes them."""
    from zoo.models.builders.whisper import LogMel

    return _rounded(LogMel(bins).double()(voice(frames * _HOP, generator)[None])[0])


def _rounded(features: torch.Tensor) -> torch.Tensor:
    return (features * _STEPS).round() / _STEPS
