"""Sound like speech by chance: syllables of a consonant and a vowel, and pauses between some.

A vowel is the source-filter model's (Fant, "Acoustic Theory of Speech Production", 1960): pulses of
the glottis, whose harmonics fall by 6 dB an octave once they leave the lips, through a cascade of
resonances (Klatt, "Software for a cascade/parallel formant synthesizer", 1980,
doi:10.1121/1.383940), here harmonic by harmonic. A consonant is a burst of noise.
"""

from __future__ import annotations

import math

import torch

__all__ = ["LOUDNESS", "RATE", "voice"]

RATE = 16_000  # samples a second
LOUDNESS = 0.1  # root of the mean square

# Formants of men's vowels in Hz: Peterson and Barney, "Control methods used in a study of the
# vowels", 1952, table II, doi:10.1121/1.1906875.
_VOWELS = (
    (270.0, 2290.0, 3010.0),  # heed
    (530.0, 1840.0, 2480.0),  # head
    (730.0, 1090.0, 2440.0),  # hod
    (570.0, 840.0, 2410.0),  # hawed
    (300.0, 870.0, 2240.0),  # who'd
)
_WIDTHS = (60.0, 90.0, 150.0)  # Hz
_PITCH = (90.0, 220.0)  # Hz
_FALL = 0.2  # by which share the pitch falls within a syllable
_HIGHEST = 4_000.0  # Hz
_CONSONANT, _VOWEL, _PAUSE = 640, 2_560, 1_600  # samples: 40, 160 and 100 ms
_BURST = 0.15  # a consonant's loudness beside a vowel's
_HISS = 1e-3  # of the room
_FULL = 2.0**15  # a sample of 16 bits is a fraction of this


def voice(samples: int, generator: torch.Generator) -> torch.Tensor:
    """Sound at 16 kHz.

    Returns:
        (samples,) float64 from -1 to 1, of the loudness `LOUDNESS`; each value is one of 16 bits.
    """
    sound = torch.cat([_syllable(generator) for _ in range(-(-samples // _syllable_length()))])
    sound = sound[:samples] + _HISS * _noise(samples, generator)
    sound = sound * (LOUDNESS / sound.square().mean().sqrt())
    return (sound.clamp(-1.0, 1.0) * _FULL).round() / _FULL


def _syllable_length() -> int:
    return _CONSONANT + _VOWEL + _PAUSE


def _syllable(generator: torch.Generator) -> torch.Tensor:
    """A consonant, a vowel and a pause."""
    vowel = _VOWELS[int(torch.randint(len(_VOWELS), (), generator=generator))]
    low, high = _PITCH
    share = float(torch.rand((), generator=generator, dtype=torch.float64))
    pitch = low * (high / low) ** share
    burst = _noise(_CONSONANT + 1, generator).diff() * _swell(_CONSONANT)
    return torch.cat([_BURST * burst, _sung(vowel, pitch), torch.zeros(_PAUSE).double()])


def _sung(vowel: tuple[float, ...], pitch: float) -> torch.Tensor:
    """A vowel of deviation 1 whose pitch falls."""
    time = torch.arange(_VOWEL, dtype=torch.float64) / RATE
    falling = pitch * (time - 0.5 * _FALL * time.square() * RATE / _VOWEL)  # turns
    harmonics = torch.arange(1, int(_HIGHEST / pitch) + 1, dtype=torch.float64)
    loud = _passed(harmonics * pitch, vowel) / harmonics
    waves = torch.cos(2.0 * math.pi * harmonics[:, None] * falling[None])
    sound = (loud[:, None] * waves).sum(0) * _swell(_VOWEL)
    return sound / sound.std()


def _passed(hertz: torch.Tensor, vowel: tuple[float, ...]) -> torch.Tensor:
    """What the resonances make of a tone's amplitude; of a constant one they make nothing."""
    passed = torch.ones_like(hertz)
    for place, width in zip(vowel, _WIDTHS, strict=True):
        squared = place**2
        passed = passed * squared / torch.hypot(squared - hertz.square(), width * hertz)
    return passed


def _swell(samples: int) -> torch.Tensor:
    """Nought at both ends, one between them."""
    turn = torch.linspace(0.0, math.pi, samples, dtype=torch.float64)
    return turn.sin().sqrt()


def _noise(samples: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(samples, generator=generator, dtype=torch.float64)
