"""Golden inputs like what a model meets: pictures and speech, beside noise.

Noise has no two neighbours alike, and so no smooth region, no edge and no pause: what a network
makes of these it never shows. Everything here is computed in float64 and rounded to what cameras
and microphones give, so that the same seed gives the same bytes on any processor. Which inputs are
pictures or speech is read from their names and shapes.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

import torch

from menagerie.validation.findings import CaseKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from menagerie.format.bundle_manifest import TensorSpec
    from zoo.spec import Dimension

# As entries here, and models of the transformers library, call them.
_SOUNDS = frozenset({"samples", "input_values", "audio", "waveform", "speech"})
_FEATURES = frozenset({"input_features"})
_CHANNELS = (1, 3)
_LEAST_SIDE = 8  # pixels: less is no picture
_MOST_BINS = 256
_SAMPLES = 8_000  # half a second at 16 kHz: a syllable, a pause and another syllable ...
_FRAMES = 50  # ... and the frames of features that are made of them


class Content(Enum):
    """What an input holds; all are float."""

    PICTURE = auto()  # (batch, 1 or 3 channels, height, width)
    SAMPLES = auto()  # (batch, samples) of sound at 16 kHz, or (samples,)
    FRAMES = auto()  # (batch, frames, mel bins), as Parakeet takes them
    BINS = auto()  # (batch, mel bins, frames), as Whisper takes them

    @property
    def kind(self) -> CaseKind:
        """Of a case with such an input."""
        return CaseKind.PICTURE if self is Content.PICTURE else CaseKind.SPEECH


def content_of(spec: TensorSpec) -> Content | None:
    """What an input holds; None for all that is neither picture nor speech."""
    if not spec.dtype.is_floating:
        return None
    match spec.shape:
        case (_, channels, height, width):
            fits = channels in _CHANNELS and _side(height) and _side(width)
            return Content.PICTURE if fits else None
        case (_, first, second) if spec.name in _FEATURES:
            return Content.FRAMES if _are_bins(second, first) else Content.BINS
        case (_,) | (_, _) if spec.name in _SOUNDS:
            return Content.SAMPLES
    return None


def sizes_of(inputs: Sequence[TensorSpec], dimensions: Mapping[str, Dimension]) -> dict[str, int]:
    """Sizes of a lifelike case: the lowest that show a thing, half a second where that is time."""
    sizes = {name: range_.low for name, range_ in dimensions.items()}
    for name, wanted in (pair for spec in inputs for pair in _wanted(spec)):
        if isinstance(name, str):
            step, high = dimensions[name].multiple_of, dimensions[name].high
            sizes[name] = max(sizes[name], min(-(-wanted // step) * step, high - high % step))
    return sizes


def _side(size: int | str) -> bool:
    return isinstance(size, str) or size >= _LEAST_SIDE


def _are_bins(size: int | str, other: int | str) -> bool:
    """Whether an axis holds bins: these are a fixed size, and few."""
    if isinstance(size, str) or size > _MOST_BINS:
        return False
    return isinstance(other, str) or size <= other


def _wanted(spec: TensorSpec) -> list[tuple[int | str, int]]:
    """The axes that are space or time, and how much of it a lifelike case wants."""
    match content_of(spec):
        case Content.PICTURE:
            return [(axis, _LEAST_SIDE) for axis in spec.shape[2:]]
        case Content.SAMPLES:
            return [(spec.shape[-1], _SAMPLES)]
        case Content.FRAMES:
            return [(spec.shape[1], _FRAMES)]
        case Content.BINS:
            return [(spec.shape[2], _FRAMES)]
    return []


# Of ImageNet's training set, as torchvision normalises by; a grey picture has their mean.
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# How much of a pixel's variance is smooth shade, region and colour.
_SHADE, _REGION, _COLOUR = 0.3, 0.6, 0.1
_SMOOTH = 2.0  # power of 1/f of what has no grain: colours, and whose outlines regions have
_BYTE, _SHORT = 255.0, 2.0**15  # levels of a pixel, and of a sample's magnitude
_RATE = 16_000  # samples a second
_VOWEL, _PAUSE = 3_200, 1_600  # samples: a syllable of 200 ms, and 100 ms of nothing
_PITCH, _HIGHEST = (90.0, 220.0), 4_000.0  # Hz
_HISS = 1e-3  # of the room, beside a syllable of deviation 1
_STEPS = 2.0**12  # of a feature's unit: coarser than what float64 leaves to a processor
_DECADES = 8.0  # that Whisper's front end keeps below its loudest bin


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
        values: pictures and samples are there; features are in the range of their front end's.
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
            return values.of(_picture(shape[1], shape[2], shape[3], generator))
        case Content.SAMPLES:
            return values.of(_voice(shape[-1], generator))
        case (
            Content.FRAMES
        ):  # each bin of mean 0 and deviation 1, as Parakeet's front end leaves it
            features = _field((shape[1], shape[2]), 1.0, generator)
            features = features - features.mean(0)
            return _rounded(features / features.std(0))
        case Content.BINS:  # decades of power, the quietest cut off, as Whisper's leaves them
            decades = 2.0 * _field((shape[1], shape[2]), 1.0, generator)
            return _rounded((torch.maximum(decades, decades.max() - _DECADES) + 4.0) / 4.0)


def _rounded(features: torch.Tensor) -> torch.Tensor:
    return (features * _STEPS).round() / _STEPS


def _picture(channels: int, height: int, width: int, generator: torch.Generator) -> torch.Tensor:
    """A picture, normalised as torchvision does: its values have mean 0 and deviation 1, roughly.

    Regions end at edges, where one thing hides another, and channels mostly agree. (channels,
    height, width) float64; before it is normalised each value is a byte's.
    """
    size = height, width
    shade, region = _field(size, 1.0, generator), _field(size, _SMOOTH, generator).sign()
    colours = torch.stack([_field(size, _SMOOTH, generator) for _ in range(channels)])
    mixed = _SHADE**0.5 * shade + _REGION**0.5 * region + _COLOUR**0.5 * colours
    mean, deviation = _moments(_MEAN, channels), _moments(_DEVIATION, channels)
    seen: torch.Tensor = ((mean + deviation * mixed).clamp(0.0, 1.0) * _BYTE).round() / _BYTE
    return (seen - mean) / deviation


def _moments(of_colours: tuple[float, ...], channels: int) -> torch.Tensor:
    found = torch.tensor(of_colours, dtype=torch.float64)
    own = found if channels == len(found) else found.mean().expand(channels)
    return own.reshape(channels, 1, 1)


def _field(size: tuple[int, int], fall: float, generator: torch.Generator) -> torch.Tensor:
    """(height, width) of mean 0 and deviation 1 whose amplitudes fall as 1/f to the power given.

    So do photographs' (Field, "Relations between the statistics of natural images and the response
    properties of cortical cells", 1987, doi:10.1364/JOSAA.4.002379), with a power of 1.
    """
    noise = torch.randn(size, generator=generator, dtype=torch.float64)
    down = torch.fft.fftfreq(size[0], dtype=torch.float64)[:, None]
    across = torch.fft.rfftfreq(size[1], dtype=torch.float64)[None, :]
    frequency = torch.hypot(down, across)
    frequency[0, 0] = torch.inf  # no mean
    field: torch.Tensor = torch.fft.irfft2(torch.fft.rfft2(noise) / frequency.pow(fall), s=size)
    return field / field.std()


def _voice(samples: int, generator: torch.Generator) -> torch.Tensor:
    """(samples,) float64 at 16 kHz: tones whose harmonics fall by 6 dB an octave, and pauses.

    Its deviation is 1; each value is one of 16 bits, of which the loudness takes a tenth.
    """
    syllables = [_syllable(generator) for _ in range(-(-samples // (_VOWEL + _PAUSE)))]
    hiss = torch.randn(samples, generator=generator, dtype=torch.float64)
    sound = torch.cat(syllables)[:samples] + _HISS * hiss
    sound = 0.1 * sound / sound.square().mean().sqrt()
    return (sound.clamp(-1.0, 1.0) * _SHORT).round() / _SHORT / 0.1


def _syllable(generator: torch.Generator) -> torch.Tensor:
    low, high = _PITCH
    share = float(torch.rand((), generator=generator, dtype=torch.float64))
    pitch = low * (high / low) ** share
    turns = pitch * torch.arange(_VOWEL, dtype=torch.float64) / _RATE
    harmonics = torch.arange(1, int(_HIGHEST / pitch) + 1, dtype=torch.float64)[:, None]
    tone = (torch.cos(2.0 * math.pi * harmonics * turns) / harmonics).sum(0)
    swell = torch.linspace(0.0, math.pi, _VOWEL, dtype=torch.float64).sin().sqrt()
    return torch.cat([tone * swell, torch.zeros(_PAUSE, dtype=torch.float64)])
