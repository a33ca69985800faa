"""Comparison of an output with eager PyTorch's, as a whole and in its weakest part.

All metrics are computed in float64, whatever the output's dtype, over the elements that are finite
on both sides; the others must be non-finite of the same kind at the same place. A part lies between
two cuts across one axis: a row of a batch, a channel, some columns. It has at least 16 elements,
because a value near zero would distort the metrics of fewer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from menagerie.numerics import Dtype, Tolerance
from menagerie.tensor_files import Array, Float64, widen
from menagerie.validation.findings import Bound, ErrorHistogram, OutputParity

_FEWEST = 16  # elements
# A part's SNR may lie this far below the required one, or its error must lie this far below the
# whole's limit: rounding errors grow with sums, whose terms cancel in small parts.
_PART_SLACK_DB = 30.0
_HALF_DECADES = (-40, 20)  # errors outside [1e-20, 1e10) are counted in the first or last bin


@dataclass(frozen=True)
class Part:
    """The indices `first` to `last` of one axis, with all indices of the others."""

    axis: int  # counted from 0
    first: int  # the lowest index
    last: int  # the highest index
    snr_db: float  # 20 log10(|ref|2 / |ref - out|2) over the part
    level_db: float  # 20 log10 of the output's RMS over the part's RMS error

    def judged(self, slack_db: float) -> float:
        """Return the highest SNR required of a whole output that this part still satisfies."""
        return max(self.snr_db + slack_db, self.level_db - slack_db)


def weakest_part(reference: Float64, output: Float64, slack_db: float) -> Part | None:
    """Return the part with the lowest `Part.judged`; None if there is no error or no part.

    Elements that are not finite on both sides count as zero; `Part.judged` defines `slack_db`.
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
    """Yield every part with an error; the units of both powers are `ratio` decibels apart."""
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


@dataclass(frozen=True)
class Metrics:
    """The distance of two tensors, as `menagerie.validation.findings.OutputParity` defines it."""

    scale: float
    max_abs: float
    max_rel: float
    snr_db: float
    cosine: float
    nonfinite_match: bool


def same_bits(left: Array, right: Array) -> bool:
    """Return whether two arrays have equal dtype, shape and bytes (so NaN equals the same NaN)."""
    return (
        left.dtype == right.dtype
        and left.shape == right.shape
        and left.tobytes() == right.tobytes()
    )


def _norm(values: Float64, scale: float) -> float:
    """Return the Euclidean norm, scaled so that squares cannot overflow."""
    return scale * float(np.linalg.norm(values / scale)) if scale > 0 else 0.0


def _cosine(reference: Float64, output: Float64) -> float:
    """Return the cosine of the angle between two vectors; 1 if both are zero, 0 if one is."""
    largest = [float(np.max(np.abs(v), initial=0.0)) for v in (reference, output)]
    if largest[0] == 0.0 or largest[1] == 0.0:
        return float(largest[0] == largest[1])
    left, right = reference / largest[0], output / largest[1]
    cosine = float(left @ right) / float(np.linalg.norm(left) * np.linalg.norm(right))
    return min(1.0, max(-1.0, cosine))


def _snr_db(signal: float, noise: float) -> float:
    """Return 20 log10(signal / noise) of two norms, either of which may be zero or infinite."""
    if noise == 0.0:
        return np.inf
    if signal == 0.0 or noise == np.inf:
        return -np.inf
    return 20.0 * (math.log10(signal) - math.log10(noise))


def _nonfinite_match(reference: Float64, output: Float64) -> bool:
    same = (reference == output) | (np.isnan(reference) & np.isnan(output))
    finite = np.isfinite(reference) & np.isfinite(output)
    return bool(np.all(same | finite))


def measure(reference: Float64, output: Float64) -> Metrics:
    """Measure how far `output` is from `reference`, which has the same shape."""
    finite = np.isfinite(reference) & np.isfinite(output)
    ref, out = reference[finite], output[finite]
    with np.errstate(over="ignore"):
        error = np.abs(out - ref)
    max_abs = float(np.max(error, initial=0.0))
    max_ref = float(np.max(np.abs(ref), initial=0.0))
    relative = max_abs / max_ref if max_ref > 0 else (np.inf if max_abs > 0 else 0.0)
    noise = _norm(error, max_abs) if np.isfinite(max_abs) else np.inf
    return Metrics(
        scale=max_ref,
        max_abs=max_abs,
        max_rel=relative,
        snr_db=_snr_db(_norm(ref, max_ref), noise),
        cosine=_cosine(ref, out),
        nonfinite_match=_nonfinite_match(reference, output),
    )


def error_histogram(reference: Float64, output: Float64) -> ErrorHistogram:
    """Count finite elements by the half decade of their error."""
    finite = np.isfinite(reference) & np.isfinite(output)
    with np.errstate(over="ignore"):
        error = np.abs(output[finite] - reference[finite])
    wrong = error[error > 0]
    low, high = _HALF_DECADES
    bins = np.clip(np.floor(2.0 * np.log10(wrong)), low, high - 1).astype(np.int64)
    if bins.size == 0:
        return ErrorHistogram(exact=error.size, first=0, counts=())
    first = int(bins.min())
    counts = np.bincount(bins - first)
    return ErrorHistogram(
        exact=error.size - wrong.size, first=first, counts=tuple(int(c) for c in counts)
    )


def _worst(reference: Float64, output: Float64) -> str:
    """Describe the element with the largest error; a non-finite mismatch exceeds any number."""
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(output - reference)
    same = (reference == output) | (np.isnan(reference) & np.isnan(output))
    finite = np.isfinite(reference) & np.isfinite(output)
    error = np.where(same, 0.0, np.where(finite, error, np.inf))
    place = np.unravel_index(int(np.argmax(error)), error.shape)
    index = ", ".join(str(int(i)) for i in place)
    return f"worst at [{index}]: eager {reference[place]:.6g}, artifact {output[place]:.6g}"


def _bound(metrics: Metrics, tolerance: Tolerance) -> Bound | None:
    """Return the bound of `Tolerance` by which an output that is not bit-equal passes, if any."""
    if not metrics.nonfinite_match:
        return None
    if metrics.max_abs <= tolerance.everywhere(metrics.scale):
        return Bound.ABSOLUTE
    near = tolerance.snr_db is not None and metrics.snr_db >= tolerance.snr_db
    return Bound.SNR if near and metrics.max_abs <= tolerance.outlier(metrics.scale) else None


def _fact(metrics: Metrics, tolerance: Tolerance | None) -> str:
    if not metrics.nonfinite_match:
        return "NaN or infinity where eager has none, or the reverse"
    if tolerance is None:
        return f"max abs error {metrics.max_abs:.3g} where every bit must be eager's"
    fact = f"max abs error {metrics.max_abs:.3g} exceeds {tolerance.everywhere(metrics.scale):.3g}"
    if tolerance.snr_db is None:
        return fact
    if metrics.snr_db < tolerance.snr_db:
        return f"{fact} and SNR {metrics.snr_db:.1f} dB is below {tolerance.snr_db:g} dB"
    most = tolerance.outlier(metrics.scale)
    return f"{fact} and, at SNR {metrics.snr_db:.1f} dB, {most:.3g} as well"


def _hidden(reference: Float64, output: Float64, tolerance: Tolerance) -> Part | None:
    """Return the weakest part if it fails the tolerance, although the whole may pass."""
    if tolerance.snr_db is None:
        return None
    part = weakest_part(reference, output, _PART_SLACK_DB)
    return part if part and part.judged(_PART_SLACK_DB) < tolerance.snr_db else None


def _part_fact(part: Part, tolerance: Tolerance) -> str:
    named = f"{part.first}" if part.first == part.last else f"{part.first} to {part.last}"
    least = (tolerance.snr_db or 0.0) - _PART_SLACK_DB
    return f"at {named} of axis {part.axis} alone SNR {part.snr_db:.1f} dB is below {least:g} dB"


def compare(
    reference: Array,
    output: Array,
    dtype: Dtype,
    tolerance: Tolerance | None,
    *,
    case: int,
    name: str,
) -> OutputParity:
    """Compare one output of one golden case with eager's; bfloat16 is held as uint16.

    It passes if it is bit-equal, or if non-finite elements match, the error lies within a bound of
    the tolerance for the output's scale, and no part is hidden by the average (see
    `menagerie.numerics.Tolerance`). Without a tolerance (integers, booleans) it must be bit-equal.
    """
    judged = partial(
        OutputParity, case=case, output=name, dtype=dtype, shape=output.shape, tolerance=tolerance
    )
    if reference.dtype != output.dtype or reference.shape != output.shape:
        fact = (
            f"output is {output.dtype} of shape {list(output.shape)}, "
            f"eager's is {reference.dtype} of shape {list(reference.shape)}"
        )
        return judged(
            max_abs=np.inf, max_rel=np.inf, snr_db=-np.inf, cosine=0.0, nonfinite_match=False,
            passed=False, fact=fact,
        )  # fmt: skip
    ref, out = widen(reference, dtype), widen(output, dtype)
    metrics = measure(ref, out)
    bound, fact = None, ""
    if same_bits(reference, output):
        bound = Bound.BITS
    elif tolerance is None or (bound := _bound(metrics, tolerance)) is None:
        fact = f"{_fact(metrics, tolerance)}; {_worst(ref, out)}"
    elif (part := _hidden(ref, out, tolerance)) is not None:
        bound, fact = None, _part_fact(part, tolerance)
    errors = error_histogram(ref, out)
    passed = bound is not None
    return judged(passed=passed, passed_by=bound, fact=fact, errors=errors, **vars(metrics))
