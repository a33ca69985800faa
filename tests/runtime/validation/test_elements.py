"""Numbers between the types of programs and those of numpy, against torch's own conversions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from menagerie.numerics import Dtype
from menagerie.tensor_files import narrow, stored, widen

FLOATS = [dtype for dtype in Dtype if dtype.is_floating]
NUMBERS = st.lists(st.floats(width=64), min_size=1, max_size=30)


def held(tensor: torch.Tensor) -> np.ndarray:
    """A tensor as programs' tensors are held in numpy."""
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy()


@pytest.mark.parametrize("given_as", FLOATS)
@pytest.mark.parametrize("wanted", FLOATS)
@given(values=NUMBERS)
def test_floats_are_rounded_as_torch_does(
    given_as: Dtype, wanted: Dtype, values: list[float]
) -> None:
    """Ties to even, overflow to infinity, NaN stays NaN; so eager and artifact see one input."""
    source = torch.tensor(values, dtype=torch.float64).to(getattr(torch, given_as.value))
    expected = source.to(getattr(torch, wanted.value))
    found = narrow(held(source), wanted)
    assert found.dtype == stored(wanted)
    numbers = widen(found, wanted)
    wide = expected.to(torch.float64).numpy()
    assert np.array_equal(numbers, wide, equal_nan=True)
    number = ~np.isnan(wide)  # the sign of a NaN says nothing
    assert np.array_equal(np.signbit(numbers[number]), np.signbit(wide[number]))


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_every_shape_is_kept(shape: tuple[int, ...]) -> None:
    """A scalar and an empty tensor as well."""
    assert narrow(np.ones(shape, np.float32), Dtype.BFLOAT16).shape == shape


def test_whole_numbers_are_not_rounded() -> None:
    """They are what the program takes, or refused: no value is lost in silence."""
    numbers = np.array([1, 2], np.int64)
    assert narrow(numbers, Dtype.INT64) is numbers
    with pytest.raises(ValueError, match="is int64, the program takes float32"):
        narrow(numbers, Dtype.FLOAT32)
    with pytest.raises(ValueError, match="is bfloat16, the program takes int32"):
        narrow(np.array([1], np.uint16), Dtype.INT32)
