"""Elements of tensors between the types that programs use and those that numpy computes with.

numpy has no bfloat16: its 16 bits, the upper half of a float32, are held as uint16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from menagerie.numerics import Dtype

__all__ = ["Array", "Float64", "narrow", "stored", "widen"]

Array = NDArray[Any]
Float64 = NDArray[np.float64]

_LOWER_HALF = 16
_QUIET_NAN = np.uint16(0x7FC0)  # what rounding the bits of a NaN could turn into an infinity


def stored(dtype: Dtype) -> np.dtype[Any]:
    """The numpy type in which tensors of `dtype` are held."""
    return np.dtype("uint16" if dtype is Dtype.BFLOAT16 else dtype.value)


def widen(array: Array, dtype: Dtype) -> Float64:
    """Returns `array`, held as `stored(dtype)`, as float64, which has every value of it."""
    if dtype is Dtype.BFLOAT16:
        array = (array.astype(np.uint32) << _LOWER_HALF).view(np.float32)
    return array.astype(np.float64)


def narrow(array: Array, dtype: Dtype) -> Array:
    """Rounds floats to nearest even, as torch does, for a program that takes `dtype`.

    Args:
        array: any shape; uint16 is taken for the bits of bfloat16.
        dtype: what is wanted.

    Returns:
        `array` itself where it is of that type already.

    Raises:
        ValueError: one of the two is not a floating type, so that values could be lost.
    """
    if array.dtype == stored(dtype):
        return array
    given = Dtype.BFLOAT16 if array.dtype == np.uint16 else array.dtype
    if not dtype.is_floating or not (given is Dtype.BFLOAT16 or array.dtype.kind == "f"):
        raise ValueError(f"is {given}, the program takes {dtype}")
    single = widen(array, Dtype.BFLOAT16) if given is Dtype.BFLOAT16 else array
    with np.errstate(over="ignore"):  # to infinity, as in torch
        if dtype is not Dtype.BFLOAT16:
            return single.astype(stored(dtype))
        bits = single.astype(np.float32).view(np.uint32)
    odd = (bits >> _LOWER_HALF) & 1
    rounded = ((bits.astype(np.uint64) + 0x7FFF + odd) >> _LOWER_HALF).astype(np.uint16)
    return np.where(np.isnan(single), _QUIET_NAN, rounded)
