"""The part of an output that lies farthest from eager's, which an average over all would hide.

A part is what lies between two cuts across one axis: a row of a batch, a channel, some columns; at
least 16 elements, since of fewer a value near zero by chance says nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from menagerie.validation.elements import Float64

__all__ = ["Part", "weakest_part"]

_FEWEST = 16  # elements


@dataclass(frozen=True)
class Part:
    """The indices `first` to `last` of an axis, whatever the others' are.

    Attributes:
        axis: counted from 0.
        first: the lowest index.
        last: the highest index.
        snr_db: 20 log10(|ref|2 / |ref - out|2) over the part.
        level_db: the same of the output's mean power a element over the part's mean error.
    """

    axis: int
    first: int
    last: int
    snr_db: float
    level_db: float

    def judged(self, slack_db: float) -> float:
        """The SNR of a whole output that asks for as much as this part reaches."""
        return max(self.snr_db + slack_db, self.level_db - slack_db)


def weakest_part(reference: Float64, output: Float64, slack_db: float) -> Part | None:
    """The part that is judged the worst; None without any error or without parts.

    Args:
        reference: eager's output; what is not finite in either counts as nought.
        output: of the same shape.
        slack_db: see `Part.judged`.
    """
    finite = np.isfinite(reference) & np.isfinite(output)
    signal = np.where(finite, reference, 0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        noise = np.where(finite, output - reference, 0.0)
    scale, largest = (float(np.max(np.abs(v), initial=0.0)) for v in (signal, noise))
    if scale == 0.0 or largest in {0.0, np.inf}:
        return None
    ratio = 20.0 * (math.log10(scale) - math.log10(largest))  # squares cannot overflow
    parts = _parts(np.square(signal / scale), np.square(noise / largest), ratio)
    return min(parts, key=lambda part: part.judged(slack_db), default=None)


def _parts(signal: Float64, noise: Float64, ratio: float) -> Iterator[Part]:
    """Every part in which there is an error, of powers whose units are `ratio` decibels apart."""
    mean = signal.mean()
    for axis, size in enumerate(signal.shape):
        each = signal.size // size
        width = -(-_FEWEST // each)
        if size < 2 * width:
            continue
        firsts = np.arange(size // width) * width
        lasts = np.append(firsts[1:], size) - 1
        own, wrong = (_sums(power, axis, firsts) for power in (signal, noise))
        fair = mean * (lasts - firsts + 1) * each
        for number in np.flatnonzero(wrong):
            yield Part(
                axis,
                int(firsts[number]),
                int(lasts[number]),
                _decibels(own[number] / wrong[number]) + ratio,
                _decibels(fair[number] / wrong[number]) + ratio,
            )


def _sums(power: Float64, axis: int, firsts: NDArray[np.intp]) -> Float64:
    others = tuple(other for other in range(power.ndim) if other != axis)
    found: Float64 = np.add.reduceat(power.sum(axis=others), firsts)
    return found


def _decibels(ratio: float) -> float:
    return 10.0 * math.log10(ratio) if ratio > 0.0 else -math.inf
