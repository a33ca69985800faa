"""What FuseCatLinear may gain: the model by which its gate was measured.

Parting saves the copy that the concatenation is: K elements a row written and read again, for
parts of K columns in all. It costs an addition of O features a row for every part but the first,
and the products become narrower. `gain` weighs the three by time per element on the CPU target,
beyond the caches; fitted to `cat_linear_sweep.py`, whose figures stand in `fuse_cat_linear.md`
beside this file. The gate asks for a gain of about 1.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transforms.passes.fuse_cat_linear import Shape

__all__ = ["gain"]

# Nanoseconds on one core of the machine of the sweep; only their ratios matter. Taken so that
# `gain` errs to the low side of most measurements.
_COPY = 1.1  # an element of the concatenation: read, written, read again
_READ = 1.0  # an element of the product's left side
_MULTIPLY = 0.03  # a multiplication and addition of the product
_ADD = 2.5  # an element of a partial result: written, read, added


def gain(shape: Shape) -> float:
    """The speed-up to expect where the concatenation does not fit the caches."""
    width = sum(shape.widths)
    product = width * (_READ + _MULTIPLY * shape.features)
    parted = product + _ADD * (len(shape.widths) - 1) * shape.features
    return (_COPY * width + product) / parted
