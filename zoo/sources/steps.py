"""Arithmetic before and after a program, which is exported and proven with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from zoo.spec import FitStep, NormaliseStep, PitchStep, Step

_NEAR = 4  # bins


def stepped(
    tensors: Mapping[str, Tensor], steps: Mapping[str, Sequence[Step]]
) -> dict[str, Tensor]:
    """Apply each tensor's steps, and return the results by name."""
    results = dict(tensors)
    for name, sequence in steps.items():
        for step in sequence:
            results[name] = _applied(step, results[name])
    return results


def _applied(step: Step, value: Tensor) -> Tensor:
    if isinstance(step, FitStep):
        return _fitted(value, step.size, step.share)
    if isinstance(step, NormaliseStep):
        mean, deviation = (
            torch.tensor(each).view(-1, 1, 1) for each in (step.mean, step.deviation)
        )
        return (value - mean) / deviation
    if isinstance(step, PitchStep):
        return _hertz(value, step)
    return value.softmax(-1)


def _hertz(scores: Tensor, step: PitchStep) -> Tensor:
    bins = torch.arange(scores.shape[-1])
    near = (bins - scores.argmax(-1, keepdim=True)).abs() <= _NEAR
    weights = torch.where(near, scores, 0.0)
    mean = (weights * bins).sum(-1) / weights.sum(-1)
    return step.lowest * torch.exp2(mean * (step.cents / 1200))


def _fitted(picture: Tensor, size: int, share: float) -> Tensor:
    """Resize the middle square of pictures (n, h, w, 3) to (n, 3, size, size), with antialiasing.

    The square's side is `share` of the shorter side. Matrix products allow any picture size.
    """
    count, high, wide, channels = picture.shape
    sides = [torch.arange(n).amax(0) + 1.0 for n in (high, wide)]  # tensors: sizes are dynamic
    scale = torch.minimum(*sides) * share / size
    rows, columns = (
        _taps(n, side, size, scale) for n, side in zip((high, wide), sides, strict=True)
    )
    narrow = rows @ picture.float().reshape(count, high, wide * channels)
    return narrow.reshape(count, size, wide, channels).permute(0, 3, 1, 2) @ columns.T


def _taps(length: int, side: Tensor, size: int, scale: Tensor) -> Tensor:
    """Return triangle filters (size, length), as wide as the distance between results."""
    start = (side - size * scale) / 2
    centres = start + (torch.arange(size) + 0.5) * scale
    away = (torch.arange(length) + 0.5 - centres[:, None]).abs()
    weights = (1 - away / scale.clamp(min=1.0)).clamp(min=0.0)
    return weights / weights.sum(1, keepdim=True)
