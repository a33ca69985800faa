"""Voices that nobody has: variants of espeak-ng's voices with every property by chance.

Its own variants are some hundred, and a model that hears those alone knows them by heart instead of
learning what a digit sounds like. A variant is a text file, so there may be as many as utterances.
The properties and their units: https://github.com/espeak-ng/espeak-ng/blob/1.51/docs/voices.md.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

__all__ = ["variant"]

_TRACT = (0.7, 1.5)  # how far all formants move together, as with the length of a throat ...
_OWN = 0.13  # ... and the deviation of each one's own place, as a logarithm
_FORMANTS = 9
_AUDIBLE = 4  # of them make the vowel; those above only colour it and may be missing
_PITCH = (55.0, 260.0)  # Hz
_STRESSES = 8  # classes of syllables by stress
_SYNTHESISERS = 6  # Klatt's, beside the usual one

# How often a voice has a property.
_KLATT, _TONE, _ECHO, _BREATH, _FLUTTER, _ROUGH, _STRESS, _MISSING = (
    0.12, 0.5, 0.15, 0.15, 0.6, 0.3, 0.3, 0.3,
)  # fmt: skip


def variant(rng: np.random.Generator) -> str:
    """The text of a variant's file, as espeak-ng reads it after a `+`."""
    return "\n".join([*_throat(rng), *_manner(rng)]) + "\n"


def _throat(rng: np.random.Generator) -> Iterator[str]:
    """Pitch and formants: who speaks."""
    yield "language variant"
    yield "name chance"
    pitch = _between(rng, *_PITCH)
    yield f"pitch {pitch} {_between(rng, 1.1 * pitch, 2 * pitch)}"
    tract = _between(rng, 100 * _TRACT[0], 100 * _TRACT[1])
    for formant in range(_FORMANTS):
        place = round(tract * math.exp(rng.normal(0.0, _OWN)))
        strength, width = _between(rng, 50, 170), _between(rng, 40, 170)
        if formant >= _AUDIBLE and rng.random() < _MISSING:
            strength = 0
        yield f"formant {formant} {place} {strength} {width}"


def _manner(rng: np.random.Generator) -> Iterator[str]:
    """How: loud or soft consonants, melody, breath, echo."""
    yield f"voicing {_between(rng, 30, 230)}"
    yield f"consonants {_between(rng, 25, 200)} {_between(rng, 30, 250)}"
    yield f"intonation {rng.integers(1, 5)}"
    if rng.random() < _KLATT:
        yield f"klatt {rng.integers(1, _SYNTHESISERS + 1)}"
    if rng.random() < _TONE:
        corners = sorted(_between(rng, 60, 5000) for _ in range(4))
        yield "tone " + " ".join(f"{hertz} {_between(rng, 20, 255)}" for hertz in corners)
    if rng.random() < _ECHO:
        yield f"echo {_between(rng, 10, 200)} {_between(rng, 5, 80)}"
    if rng.random() < _BREATH:
        yield "breath " + " ".join(str(_between(rng, 1, 40)) for _ in range(_STRESSES))
        yield "breathw 150 150 200 200 400 400"
    if rng.random() < _FLUTTER:
        yield f"flutter {_between(rng, 1, 20)}"
    if rng.random() < _ROUGH:
        yield f"roughness {rng.integers(1, 7)}"
    if rng.random() < _STRESS:
        yield "stressAdd " + " ".join(str(rng.integers(-40, 200)) for _ in range(_STRESSES))
        yield "stressAmp " + " ".join(str(_between(rng, 12, 36)) for _ in range(_STRESSES))


def _between(rng: np.random.Generator, low: float, high: float) -> int:
    """As likely half as double: uniform in its logarithm."""
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))
