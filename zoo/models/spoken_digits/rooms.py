"""What happens to speech on its way: rooms, noise, telephones, bad recordings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import fft

from zoo.models.spoken_digits.speakers import RATE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Signal = NDArray[np.float32]

__all__ = ["heard", "noise"]

# How often each disturbance comes.
_ROOM, _TELEPHONE, _NOISE, _BABBLE, _CLIPPED, _OFFSET = 0.5, 0.15, 0.8, 0.15, 0.1, 0.1
_LOW, _HIGH = 300, 3400  # Hz, what a telephone lets through


def heard(
    rng: np.random.Generator, speech: Signal, others: list[Signal], *, pause: float = 0.6
) -> Signal:
    """`speech` as a microphone may record it, each disturbance by chance.

    Args:
        rng: where chance comes from.
        speech: (samples,) at 16 kHz.
        others: voices that may babble in the background.
        pause: the longest silence, in seconds, before and after it.

    Returns:
        (samples and pauses,), amplitudes below 1.
    """
    before, after = (int(rng.uniform(0.0, pause) * RATE) for _ in range(2))
    signal = np.pad(speech, (before, after))
    if rng.random() < _ROOM:
        signal = _room(rng, signal)
    if rng.random() < _TELEPHONE:
        signal = _telephone(signal)
    if rng.random() < _NOISE:
        signal = _disturbed(rng, signal, others)
    signal = signal / max(float(np.abs(signal).max()), 1e-6)
    if rng.random() < _CLIPPED:
        signal = np.clip(signal * rng.uniform(1.5, 6.0), -1.0, 1.0)
    signal = signal * np.exp(rng.uniform(np.log(0.02), np.log(0.95)))
    if rng.random() < _OFFSET:
        signal = signal + rng.uniform(-0.05, 0.05)
    return np.asarray(signal, np.float32)


def noise(rng: np.random.Generator, samples: int) -> Signal:
    """(samples,) with power falling with frequency by 0 (white) to 2 (brown), deviation 1."""
    size = fft.next_fast_len(samples, real=True)
    spectrum = fft.rfft(rng.standard_normal(size, np.float32))
    slope = rng.uniform(0.0, 1.0)  # of amplitude; power falls twice as fast
    frequency = np.maximum(np.arange(len(spectrum), dtype=np.float32), 1.0)
    shaped: Signal = fft.irfft(spectrum * frequency ** np.float32(-slope), size)[:samples]
    return np.divide(shaped, max(float(shaped.std()), 1e-9), dtype=np.float32)


def _room(rng: np.random.Generator, signal: Signal) -> Signal:
    """Convolves with a decaying tail of noise after the direct sound."""
    decay = rng.uniform(0.1, 0.6)  # seconds until the echo is 60 dB lower
    times = np.arange(int(decay * RATE)) / RATE
    echo = rng.standard_normal(len(times)) * np.exp(-6.9 * times / decay)
    echo *= 10 ** (-rng.uniform(0.0, 15.0) / 20) / np.linalg.norm(echo)
    echo[0] = 1.0
    size = fft.next_fast_len(len(signal) + len(echo), real=True)
    spectrum = fft.rfft(signal, size) * fft.rfft(echo.astype(np.float32), size)
    wet: Signal = fft.irfft(spectrum, size)[: len(signal)]
    return wet


def _telephone(signal: Signal) -> Signal:
    size = fft.next_fast_len(len(signal), real=True)
    spectrum = fft.rfft(signal, size)
    frequency = fft.rfftfreq(size, 1 / RATE)
    spectrum[(frequency < _LOW) | (frequency > _HIGH)] = 0
    narrow: Signal = fft.irfft(spectrum, size)[: len(signal)]
    return narrow


def _disturbed(rng: np.random.Generator, signal: Signal, others: list[Signal]) -> Signal:
    """Adds noise 5 to 35 dB below the speech, or other voices 12 to 30 dB below."""
    if others and rng.random() < _BABBLE:
        chosen = [others[index] for index in rng.integers(0, len(others), 4)]
        background = np.sum([np.resize(other, len(signal)) for other in chosen], axis=0)
        level = rng.uniform(12.0, 30.0)
    else:
        background, level = noise(rng, len(signal)), rng.uniform(5.0, 35.0)
    ratio = np.linalg.norm(signal) / max(float(np.linalg.norm(background)), 1e-9)
    return np.asarray(signal + background * ratio * 10 ** (-level / 20), np.float32)
