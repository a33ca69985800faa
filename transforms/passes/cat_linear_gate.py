"""When a linear on the parts of a concatenation is worth it.

The gate was measured on the CPU target; `benchmarks/fuse_cat_linear.md` has the sweep. It opens for
a concatenation that leaves the caches and whose columns far outnumber the features that the parts'
results add up, within what was measured; whatever it lets through gained 1.15x and more there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch

from zoo.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["GATES", "Shape", "checked_gate", "denial", "least"]

GATES = ("measured", "open")

_MOST_PARTS = 4
_LEAST_WIDTH, _MOST_WIDTH = 64, 2048  # of a part; of all together
_LEAST_RATIO = 16  # columns in all, for one feature of one addition
_FLOAT32 = 4


class Shape(NamedTuple):
    """What the speed depends on."""

    rows: int  # all leading axes together
    widths: tuple[int, ...]  # of the parts
    features: int  # the linear's outputs
    itemsize: int  # bytes


def checked_gate(place: str, gate: str) -> str:
    """`gate` if there is such a one.

    Raises:
        UsageError: there is not.
    """
    if gate in GATES:
        return gate
    raise UsageError(place, f"has no gate {gate!r}", f"It takes: {', '.join(GATES)}")


def denial(shape: Shape, least_bytes: int = 16 * 2**20) -> str | None:
    """Why the rewrite would not pay; None if it does.

    Args:
        shape: with the fewest rows that may come.
        least_bytes: a smaller concatenation stays in the caches and costs next to nothing.
    """
    additions, width = len(shape.widths) - 1, sum(shape.widths)
    added = shape.features * additions
    checks = (
        (additions >= _MOST_PARTS, f"it has {additions + 1} parts, more than {_MOST_PARTS}"),
        (min(shape.widths) < _LEAST_WIDTH, f"a part is narrower than {_LEAST_WIDTH}"),
        (width > _MOST_WIDTH, f"it is {width} wide, wider than {_MOST_WIDTH}"),
        (shape.itemsize != _FLOAT32, "only float32 was measured"),
        (
            shape.rows * width * shape.itemsize < least_bytes,
            f"with {shape.rows} rows (the least that may come) it stays in the caches",
        ),
        (
            width < _LEAST_RATIO * added,
            f"a copy of {width} columns saved promises nothing beside {added} to add",
        ),
    )
    return next((reason for fails, reason in checks if fails), None)


def least(sizes: Iterable[int | torch.SymInt]) -> int:
    """The fewest elements that axes of these sizes may have at run time."""
    return math.prod(_least(size) for size in sizes)


def _least(size: int | torch.SymInt) -> int:
    if not isinstance(size, torch.SymInt):
        return size
    return max(0, int(size.node.shape_env.bound_sympy(size.node.expr).lower))
