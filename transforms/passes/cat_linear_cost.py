"""When a linear on the parts of a concatenation is faster than on the whole.

Parting saves the copy that the concatenation is: K elements a row written and read again, for
parts of K columns in all. It costs an addition of O features a row for every part but the first,
and the products become narrower. `gain` weighs the three by time per element on the CPU target,
beyond the caches; fitted to `benchmarks/cat_linear_sweep.py`, whose figures stand in
`fuse_cat_linear.md` beside this file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Limits", "Shape", "denial", "gain", "least"]

# Nanoseconds on one core of the machine of the sweep; only their ratios matter. Taken so that
# `gain` errs to the low side of most measurements.
_COPY = 1.1  # an element of the concatenation: read, written, read again
_READ = 1.0  # an element of the product's left side
_MULTIPLY = 0.03  # a multiplication and addition of the product
_ADD = 2.5  # an element of a partial result: written, read, added

_FLOAT32 = 4


@dataclass(frozen=True)
class Shape:
    """What the speed depends on."""

    rows: int  # all leading axes together
    widths: tuple[int, ...]  # of the parts
    features: int  # the linear's outputs
    itemsize: int  # bytes


@dataclass(frozen=True)
class Limits:
    """What the gate asks for: the speed-up it must expect, and the bounds of what was measured."""

    min_bytes: int = 16 * 2**20  # a concatenation that stays in the caches costs next to nothing
    min_gain: float = 1.3
    max_parts: int = 4
    min_width: int = 64
    max_width: int = 2048


def least(sizes: Iterable[int | torch.SymInt]) -> int:
    """The fewest elements that axes of these sizes may have at run time."""
    return math.prod(_least(size) for size in sizes)


def _least(size: int | torch.SymInt) -> int:
    if not isinstance(size, torch.SymInt):
        return size
    return max(0, int(size.node.shape_env.bound_sympy(size.node.expr).lower))


def gain(shape: Shape) -> float:
    """The speed-up to expect where the concatenation does not fit the caches."""
    width = sum(shape.widths)
    product = width * (_READ + _MULTIPLY * shape.features)
    parted = product + _ADD * (len(shape.widths) - 1) * shape.features
    return (_COPY * width + product) / parted


def denial(shape: Shape, limits: Limits) -> str | None:
    """Why the rewrite would not pay; None if it does."""
    parts, width = len(shape.widths), sum(shape.widths)
    expected = gain(shape)
    checks = (
        (parts > limits.max_parts, f"it has {parts} parts, more than {limits.max_parts}"),
        (min(shape.widths) < limits.min_width, f"a part is narrower than {limits.min_width}"),
        (width > limits.max_width, f"it is {width} wide, wider than {limits.max_width}"),
        (shape.itemsize != _FLOAT32, "only float32 was measured"),
        (
            shape.rows * width * shape.itemsize < limits.min_bytes,
            f"with {shape.rows} rows (the least that may come) it stays in the caches",
        ),
        (
            expected < limits.min_gain,
            f"the cost model promises {expected:.2f}x, less than {limits.min_gain}x",
        ),
    )
    return next((reason for fails, reason in checks if fails), None)
