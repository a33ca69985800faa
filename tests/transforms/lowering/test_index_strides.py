"""Strides of indexes: torch's own where they are short, never simplified where they are long."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import sympy
from torch._inductor import sizevars
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from transforms.lowering.inductor import stride_in_range

_X, _Y, _SIZE = sympy.symbols("x y size", integer=True, nonnegative=True)


def _nested(depth: int) -> sympy.Expr:
    """An index as relative shifts have them: remainders of remainders of places."""
    index = _X + _Y * (_SIZE + 1)
    for i in range(depth):
        rows = FloorDiv(_SIZE + i, 3) + 1
        index = rows * ModularIndexing(index + i, 1, rows + 2) + FloorDiv(index, rows) + _X
    return index


@pytest.mark.parametrize(
    ("index", "stride"),
    [
        (3 * _X + _Y, 3),
        (_X * FloorDiv(_SIZE, 8) + _Y, FloorDiv(_SIZE, 8)),
        (_Y * _SIZE, 0),
        (_Y + FloorDiv(_X, 16), 0),  # within sixteen steps from a multiple of sixteen
    ],
)
def test_short_indexes_have_exact_strides(index: sympy.Expr, stride: sympy.Expr) -> None:
    """In vectors of sixteen."""
    assert stride_in_range(index, _X, 16) == stride


def test_long_indexes_are_not_simplified() -> None:
    """The difference is right at each place, has the variable in it, and cost nothing."""
    index = _nested(4)
    with patch.object(sizevars.sympy, "simplify", side_effect=AssertionError("simplified")):
        stride = stride_in_range(index, _X, 16)
        assert stride_in_range(index, sympy.Symbol("other"), 16) == 0
    assert stride.has(_X)
    for x, y, size in [(0, 0, 1), (3, 2, 5), (7, 1, 12)]:
        here, there = ({_X: place, _Y: y, _SIZE: size} for place in (x, x + 1))
        assert stride.subs(here) == index.subs(there) - index.subs(here)
