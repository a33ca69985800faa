"""Samples and tables, which a bundle keeps instead of large golden outputs and inputs.

A sample, `<case>/output/<name>`, has the elements at regular steps along each axis. Beside it, the
golden file has `<case>/shape/<name>` and `<case>/steps/<name>`, int64, a number for each axis, and
`<case>/sums/<name>`: the sum of each block that begins at a kept element, in float64 for floats and
int64 modulo 2^64 for integers. Steps are odd, to sample every position in tiles of a power of two.

Large noise takes its elements from a table: `<case>/input/<name>` is that table, and
`<case>/sizes/<name>`, int64, has the input's sizes. A hash of an element's number selects its place
in the table, so that no two windows of an input are alike, whatever windows a model looks through.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from menagerie.format.bundle_manifest import TensorSpec
from menagerie.numerics import Dtype, Tolerance
from menagerie.tensor_files import Array, widen

TABLE = 2**14  # elements
_LARGE = 4 * TABLE
_MOST = 2**32  # elements that 32-bit numbers can address


def is_large(elements: int) -> bool:
    """Return whether noise with this number of elements is taken from a table."""
    return elements > _LARGE


def places(elements: int) -> Array:
    """Return each element's index in a table by the last step of MurmurHash3 (A. Appleby, 2011)."""
    mixed = np.arange(elements, dtype=np.uint32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        mixed ^= mixed >> np.uint32(shift)
        mixed *= np.uint32(factor)
    mixed ^= mixed >> np.uint32(16)
    mixed &= np.uint32(TABLE - 1)
    return mixed


def table_of(array: Array) -> Array | None:
    """Return the table that a large array's elements come from; None if there is none."""
    if not is_large(array.size):
        return None
    flat, at = array.ravel(), places(array.size)
    table = np.zeros(TABLE, array.dtype)
    table[at] = flat
    return table if table[at].tobytes() == flat.tobytes() else None


def from_table(table: Array, sizes: tuple[int, ...]) -> Array:
    """Return the array of the given sizes, with elements from a table."""
    return table[places(math.prod(sizes))].reshape(sizes)


def read_sizes(
    tensors: Mapping[str, Array],
    case: int,
    spec: TensorSpec,
    dimensions: Mapping[str, tuple[int, int, int]],
) -> tuple[int, ...] | None:
    """Return the sizes of an input that is kept as a table; None for any other input.

    Raise ValueError if the sizes do not fit the input or a table.
    """
    found = tensors.get(f"{case}/sizes/{spec.name}")
    if found is None:
        return None
    if found.dtype != np.int64 or found.shape != (len(spec.shape),):
        raise ValueError("has sizes of another number of axes")
    sizes = tuple(found.tolist())
    for size, axis in zip(sizes, spec.shape, strict=True):
        low, high, _ = dimensions[axis] if isinstance(axis, str) else (axis, axis, 1)
        if not low <= size <= high:
            raise ValueError(f"has sizes {list(sizes)}, which the program does not take")
    table = tensors[f"{case}/input/{spec.name}"]
    if table.shape != (TABLE,) or not _LARGE < math.prod(sizes) < _MOST:
        raise ValueError("has a table of another length, or sizes that do not belong to one")
    return sizes


@dataclass(frozen=True)
class Sample:
    """The kept sample of one output. Raises ValueError if its parts do not match."""

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
        """Return the samples of eager's output and of `output`, or arrays of unequal shapes."""
        if output.shape != self.shape:
            return np.broadcast_to(self.values.ravel()[0], self.shape), output
        return self.values, every(output, self.steps)

    def fact(self, output: Array, dtype: Dtype, tolerance: Tolerance | None) -> str:
        """Return the fault of an output whose kept elements pass; empty if there is none.

        The mean error of a block may be as large as `tolerance` allows for a single element.
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
    """Return odd steps that keep at most `most` elements, thinning the longest axes first."""
    steps, kept = [1] * len(shape), list(shape)
    while math.prod(kept) > most:
        axis = kept.index(max(kept))
        steps[axis] += 2
        kept[axis] = -(-shape[axis] // steps[axis])
    return tuple(steps)


def sampled(output: Array, dtype: Dtype, most: int) -> Sample | None:
    """Return the sample of an output held as `stored(dtype)`; None if it is small enough."""
    if output.size <= most:
        return None
    steps = steps_of(output.shape, most)
    sums = block_sums(output, dtype, steps)
    return Sample(output.shape, steps, np.ascontiguousarray(every(output, steps)), sums)


def read_sample(tensors: Mapping[str, Array], case: int, name: str) -> Sample | None:
    """Return an output's sample in a golden file, None if it is whole; ValueError if broken."""
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
    """Return the elements at the given steps along each axis; all if the axes do not match."""
    if output.ndim != len(steps):
        return output
    return output[tuple(slice(None, None, step) for step in steps)]


def block_sums(output: Array, dtype: Dtype, steps: Sequence[int]) -> Array:
    """Return the sums of blocks of the given sizes along each axis; the last may be smaller."""
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
