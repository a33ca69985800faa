"""Which inputs of a program are pictures or speech, told by their names and shapes."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from menagerie.validation.findings import CaseKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from menagerie.format.bundle_manifest import TensorSpec
    from zoo.spec import Dimension

__all__ = ["Content", "content_of", "sizes_of"]

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
