"""Pictures by chance, with the statistics of photographs.

The amplitude of their spatial frequencies falls as 1/f (Field, "Relations between the statistics of
natural images and the response properties of cortical cells", 1987, doi:10.1364/JOSAA.4.002379),
and regions end at edges, where one thing hides another. Channels mostly agree.
"""

from __future__ import annotations

import torch

__all__ = ["picture"]

# Of ImageNet's training set, as torchvision normalises by; a grey picture has their mean.
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# How much of a pixel's variance is smooth shade, region and colour.
_SHADE, _REGION, _COLOUR = 0.3, 0.6, 0.1
_SMOOTH = 2.0  # power of 1/f of what has no grain: colours, and whose outlines regions have
_LEVELS = 255.0  # of a byte


def picture(channels: int, height: int, width: int, generator: torch.Generator) -> torch.Tensor:
    """A picture, normalised as torchvision does: its values have mean 0 and deviation 1, roughly.

    Returns:
        (channels, height, width) float64; before it is normalised each value is a byte's.
    """
    size = height, width
    shade, region = _field(size, 1.0, generator), _field(size, _SMOOTH, generator).sign()
    colours = torch.stack([_field(size, _SMOOTH, generator) for _ in range(channels)])
    mixed = _SHADE**0.5 * shade + _REGION**0.5 * region + _COLOUR**0.5 * colours
    mean, deviation = _moments(_MEAN, channels), _moments(_DEVIATION, channels)
    seen: torch.Tensor = ((mean + deviation * mixed).clamp(0.0, 1.0) * _LEVELS).round() / _LEVELS
    return (seen - mean) / deviation


def _moments(of_colours: tuple[float, ...], channels: int) -> torch.Tensor:
    found = torch.tensor(of_colours, dtype=torch.float64)
    own = found if channels == len(found) else found.mean().expand(channels)
    return own.reshape(channels, 1, 1)


def _field(size: tuple[int, int], fall: float, generator: torch.Generator) -> torch.Tensor:
    """(height, width) of mean 0 and deviation 1 whose amplitudes fall as 1/f to the power given."""
    noise = torch.randn(size, generator=generator, dtype=torch.float64)
    down = torch.fft.fftfreq(size[0], dtype=torch.float64)[:, None]
    across = torch.fft.rfftfreq(size[1], dtype=torch.float64)[None, :]
    frequency = torch.hypot(down, across)
    frequency[0, 0] = torch.inf  # no mean
    field: torch.Tensor = torch.fft.irfft2(torch.fft.rfft2(noise) / frequency.pow(fall), s=size)
    return field / field.std()
