"""Golden inputs like those a model meets: pictures and speech, besides noise.

No two neighbours in noise are alike, so it has no smooth region, no edge and no pause, and never
shows how a network treats these. Everything here is computed in float64 and rounded to 1/4096, so
that the same seed gives the same bytes on any processor. Names and shapes of inputs decide which of
them are pictures or speech.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import torch

from menagerie.format.bundle_manifest import TensorSpec
from menagerie.validation.findings import CaseKind

if TYPE_CHECKING:
    from zoo.spec import Dimension, InputSpec

# Names used by entries here, and by models of the transformers library.
_SOUNDS = frozenset({"samples", "input_values", "audio", "waveform", "speech"})
_FEATURES = frozenset({"input_features"})
_CHANNELS = (1, 3)
_LEAST_SIDE = 8  # pixels; anything smaller is no picture
_MOST_BINS = 256
_SAMPLES = 8_000  # half a second at 16 kHz: a syllable, a pause and another syllable ...
_FRAMES = 50  # ... and the feature frames made from them


class Content(Enum):
    """The content of a float input: its axes of space or time, and the size they need.

    The kind of a case with such an input is that of its content.
    """

    PICTURE = (2, 3), _LEAST_SIDE  # (batch, 1 or 3 channels, height, width)
    SAMPLES = (-1,), _SAMPLES  # (batch, samples) of sound at 16 kHz, or (samples,)
    FRAMES = (1,), _FRAMES  # (batch, frames, mel bins), as Parakeet takes them
    BINS = (2,), _FRAMES  # (batch, mel bins, frames), as Whisper takes them

    @property
    def kind(self) -> CaseKind:
        """The kind of a case with such an input."""
        return CaseKind.PICTURE if self is Content.PICTURE else CaseKind.SPEECH


def content_of(spec: TensorSpec | InputSpec) -> Content | None:
    """Return an input's content; None if it is neither picture nor speech."""
    if not spec.dtype.is_floating:
        return None
    match spec.shape:
        case (_, channels, height, width):
            sides = (side for side in (height, width) if not isinstance(side, str))
            fits = channels in _CHANNELS and all(side >= _LEAST_SIDE for side in sides)
            return Content.PICTURE if fits else None
        case (_, first, second) if spec.name in _FEATURES:
            # An axis of bins has a fixed size, and is the shorter one.
            least = _MOST_BINS if isinstance(first, str) else min(first, _MOST_BINS)
            bins_last = isinstance(second, int) and second <= least
            return Content.FRAMES if bins_last else Content.BINS
        case (_,) | (_, _) if spec.name in _SOUNDS:
            return Content.SAMPLES
    return None


def sizes_of(
    inputs: Sequence[TensorSpec | InputSpec], dimensions: Mapping[str, Dimension]
) -> dict[str, int]:
    """Return the sizes of a lifelike case: the lowest that show an object, or half a second."""
    sizes = {name: range_.low for name, range_ in dimensions.items()}
    for spec in inputs:
        axes, wanted = ((), 0) if (content := content_of(spec)) is None else content.value
        for name in {spec.shape[axis] for axis in axes} & sizes.keys():
            step, high = dimensions[name].multiple_of, dimensions[name].high
            sizes[name] = max(sizes[name], min(-(-wanted // step) * step, high))
    return sizes


@dataclass(frozen=True)
class Values:
    """Mean, deviation and range of the values that an input takes."""

    mean: float
    deviation: float
    low: float = -math.inf
    high: float = math.inf

    def of(self, standard: torch.Tensor) -> torch.Tensor:
        """Scale values of mean 0 and deviation 1 to this distribution."""
        return (standard * self.deviation + self.mean).clamp(self.low, self.high)


def generator_of(seed: str) -> torch.Generator:
    """Return a generator that is seeded by a text."""
    digest = hashlib.sha256(seed.encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:6], "big"))


_REGION = 0.7  # share of a pixel's variance due to its region; the rest is smooth shade
_RATE = 16_000  # samples a second
_SYLLABLE = 0.3  # seconds; the second half is a pause
_PITCH = (90.0, 220.0)  # Hz
_HARMONICS = 16
_HISS = 1e-3  # room noise, relative to a syllable of deviation 1
_STEPS = 2.0**12  # per unit: coarser than float64 differences between processors
_DECADES = 8.0  # that Whisper's front end keeps below its loudest bin


def draw(content: Content, shape: Sequence[int], values: Values, *, seed: str) -> torch.Tensor:
    """Return a float32 input like pictures or speech, the same for the same seed.

    `values` applies to pictures and samples; features are in the range of their front end's.
    """
    generator = generator_of(f"lifelike {seed}")
    rows = shape[0] if len(shape) > 1 else 1
    drawn = torch.stack([_row(content, shape[1:] or shape, generator) for _ in range(rows)])
    drawn = ((drawn * _STEPS).round() / _STEPS).reshape(tuple(shape))
    is_there = content in {Content.PICTURE, Content.SAMPLES}
    return (values.of(drawn) if is_there else drawn).float()


def _row(content: Content, shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """Return one row in float64; pictures and samples have roughly mean 0 and deviation 1."""
    match content:
        case Content.PICTURE:  # regions end at edges, where one object hides another
            region = math.sqrt(_REGION) * _field(shape[1:], 2.0, generator).sign()
            shades = torch.stack([_field(shape[1:], 1.0, generator) for _ in range(shape[0])])
            return region + math.sqrt(1.0 - _REGION) * shades
        case Content.SAMPLES:
            return _voice(shape[0], generator)
        case Content.FRAMES:  # each bin has mean 0 and deviation 1, as from Parakeet's front end
            features = _field(shape, 1.0, generator)
            return (features - features.mean(0)) / features.std(0)
        case Content.BINS:  # decades of power, the quietest cut off, as in Whisper's
            decades = 2.0 * _field(shape, 1.0, generator)
            return (torch.maximum(decades, decades.max() - _DECADES) + 4.0) / 4.0


def _field(size: Sequence[int], fall: float, generator: torch.Generator) -> torch.Tensor:
    """Return (height, width) of mean 0 and deviation 1 whose amplitudes fall as 1/f ** fall.

    Photographs have `fall` = 1 (Field, "Relations between the statistics of natural images and the
    response properties of cortical cells", 1987, doi:10.1364/JOSAA.4.002379).
    """
    noise = torch.randn(tuple(size), generator=generator, dtype=torch.float64)
    down = torch.fft.fftfreq(size[0], dtype=torch.float64)[:, None]
    across = torch.fft.rfftfreq(size[1], dtype=torch.float64)[None, :]
    frequency = torch.hypot(down, across)
    frequency[0, 0] = torch.inf  # removes the mean
    spectrum = torch.fft.rfft2(noise) / frequency.pow(fall)
    field: torch.Tensor = torch.fft.irfft2(spectrum, s=tuple(size))
    return field / field.std()


def _voice(samples: int, generator: torch.Generator) -> torch.Tensor:
    """Return (samples,): a tone with harmonics of -6 dB per octave, in syllables with pauses."""
    low, high = _PITCH
    share = torch.rand((), generator=generator, dtype=torch.float64)
    time = torch.arange(samples, dtype=torch.float64) / _RATE
    turns = 2.0 * math.pi * low * (high / low) ** share * time
    tone = sum((turns * n).cos() / n for n in range(1, _HARMONICS + 1))
    loudness = (2.0 * math.pi / _SYLLABLE * time).sin().clamp(min=0.0).sqrt()
    hiss = torch.randn(samples, generator=generator, dtype=torch.float64)
    sound = tone * loudness + _HISS * hiss
    return sound / sound.square().mean().sqrt()
