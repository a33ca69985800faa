"""Large golden outputs, of which a bundle keeps some elements, and sums of them all.

Beside `<case>/output/<name>`, which then has every so many-th element along each axis, a golden
file has `<case>/shape/<name>` and `<case>/steps/<name>`, int64, a number for each axis, and
`<case>/sums/<name>`: the sum of each block that begins at a kept element, float64 of floats, and
int64 modulo 2^64 of integers. Steps are odd, so that tiles of a power of two are hit everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from menagerie.numerics import Dtype, Tolerance
from menagerie.tensor_files import Array, widen


@dataclass(frozen=True)
class Sample:
    """What is kept of one output; ValueError if the parts do not fit each other."""

    shape: tuple[int, ...]
    steps: tuple[int, ...]
    values: Array
    sums: Array

    def __post_init__(self) -> None:
        axes = len(self.shape), len(self.steps), self.values.ndim
        if len(set(axes)) != 1 or min(self.shape + self.steps, default=0) < 1:
            raise ValueError("has a shape and steps of other axes, or of none")
        kept = tuple(-(-size // step) for size, step in zip(self.shape, self.steps, strict=True))
        if kept != self.values.shape or kept != self.sums.shape:
            raise ValueError(f"keeps {list(kept)} elements by its steps, and has others")

    def beside(self, output: Array) -> tuple[Array, Array]:
        """Return what is kept of eager's output and the same of `output`, or two unequal shapes."""
        if output.shape != self.shape:
            return np.broadcast_to(self.values.ravel()[0], self.shape), output
        return self.values, every(output, self.steps)

    def fact(self, output: Array, dtype: Dtype, tolerance: Tolerance | None) -> str:
        """Return what speaks against an output whose kept elements pass; empty: nothing.

        The mean error of a block is at most what `tolerance` allows of a single element.
        """
        found, counts = block_sums(output, dtype, self.steps), _counts(self.shape, self.steps)
        eager = self.sums
        if tolerance is None or not dtype.is_floating:
            wrong = found != eager
        else:
            finite = np.isfinite(eager)
            values = widen(self.values, dtype)
            means = np.abs(np.concatenate([values.ravel(), (eager / counts).ravel()]))
            scale = float(np.max(means[np.isfinite(means)], initial=0.0))
            most = counts * max(tolerance.everywhere(scale), tolerance.outlier(scale))
            same = (found == eager) | (np.isnan(found) & np.isnan(eager))
            with np.errstate(invalid="ignore"):
                wrong = ~np.where(finite, np.abs(found - eager) <= most, same)
        if not wrong.any():
            return ""
        at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        first = [int(i) * step for i, step in zip(at, self.steps, strict=True)]
        return f"the block at {first} sums to {found[at]:.6g}, eager's to {eager[at]:.6g}"


def steps_of(shape: Sequence[int], most: int) -> tuple[int, ...]:
    """Return odd steps that keep `most` elements at most, the longest axes thinned first."""
    steps, kept = [1] * len(shape), list(shape)
    while math.prod(kept) > most:
        axis = kept.index(max(kept))
        steps[axis] += 2
        kept[axis] = -(-shape[axis] // steps[axis])
    return tuple(steps)


def sampled(output: Array, dtype: Dtype, most: int) -> Sample | None:
    """Return what is kept of an output held as `stored(dtype)`; None where `most` have room."""
    if output.size <= most:
        return None
    steps = steps_of(output.shape, most)
    sums = block_sums(output, dtype, steps)
    return Sample(output.shape, steps, np.ascontiguousarray(every(output, steps)), sums)


def read_sample(tensors: Mapping[str, Array], case: int, name: str) -> Sample | None:
    """Return what a golden file keeps of an output; None: all. Raise ValueError if it cannot be."""
    steps, shape, sums = (
        tensors.get(f"{case}/{part}/{name}") for part in ("steps", "shape", "sums")
    )
    if steps is None or shape is None or sums is None:
        return None
    if steps.dtype != np.int64 or shape.dtype != np.int64 or steps.ndim != 1 or shape.ndim != 1:
        raise ValueError("has a shape or steps that are no list of whole numbers")
    values = tensors[f"{case}/output/{name}"]
    return Sample(tuple(map(int, shape)), tuple(map(int, steps)), values, sums)


def every(output: Array, steps: Sequence[int]) -> Array:
    """Return every so many-th element along each axis; all of an output of other axes."""
    if output.ndim != len(steps):
        return output
    return output[tuple(slice(None, None, step) for step in steps)]


def block_sums(output: Array, dtype: Dtype, steps: Sequence[int]) -> Array:
    """Return the sums of blocks of so many elements along each axis, the last ones smaller."""
    wide: Any = widen(output, dtype) if dtype.is_floating else output.astype(np.int64)
    with np.errstate(invalid="ignore", over="ignore"):
        for axis, step in enumerate(steps):
            wide = np.add.reduceat(wide, np.arange(0, wide.shape[axis], step), axis=axis)
    return np.asarray(wide)


def _counts(shape: Sequence[int], steps: Sequence[int]) -> Array:
    counts: Any = np.ones((), np.int64)
    for size, step in zip(shape, steps, strict=True):
        along = np.minimum(step, size - np.arange(0, size, step))
        counts = np.multiply.outer(counts, along)
    return np.asarray(counts)
