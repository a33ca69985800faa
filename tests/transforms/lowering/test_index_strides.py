"""Strides of indexes: torch's own where they are short, never simplified where they are long."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import sympy
from torch._inductor import sizevars
from torch.utils._sympy.functions import FloorDiv, ModularIndexing, Where

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


def _reflected() -> sympy.Expr:
    """A place of a row, three behind its beginning, that margins continue by reflection."""
    place = _SIZE - 1 - sympy.Abs(_SIZE - 1 - sympy.Abs(_X - 3))
    return _Y * _SIZE + Where(place < 0, place + _SIZE, place)


@pytest.mark.parametrize("index", [_nested(4), _reflected()], ids=["long", "reflected"])
def test_what_would_take_long_is_not_simplified(index: sympy.Expr) -> None:
    """The difference is right at each place, has the variable in it, and cost nothing."""
    with patch.object(sizevars.sympy, "simplify", side_effect=AssertionError("simplified")):
        stride = stride_in_range(index, _X, 16)
        assert stride_in_range(index, sympy.Symbol("other"), 16) == 0
        if not index.has(ModularIndexing):
            assert stride_in_range(index, _Y, 16) == _SIZE
    assert stride.has(_X)
    for x, y, size in [(0, 0, 1), (3, 2, 5), (7, 1, 12)]:
        here, there = ({_X: place, _Y: y, _SIZE: size} for place in (x, x + 1))
        assert stride.subs(here) == index.subs(there) - index.subs(here)
