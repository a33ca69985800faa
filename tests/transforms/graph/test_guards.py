"""Whether an expression is a number is remembered, and answered as sympy does."""

from __future__ import annotations

import pytest
import sympy
from sympy.core.expr import Expr

from transforms.graph.guards import is_number_cached

_SIZE = sympy.Symbol("s0", integer=True, positive=True)


@pytest.mark.parametrize(
    "expression", [_SIZE, 2 * _SIZE + 1, sympy.sqrt(2) + 1, sympy.Integer(3), sympy.Min(_SIZE, 4)]
)
def test_the_answer_is_sympys_own(expression: sympy.Expr) -> None:
    """It is one with no symbol in it."""
    with is_number_cached():
        assert expression.is_number is (not expression.free_symbols)
        assert expression.is_number is (not expression.free_symbols)


def test_parts_are_looked_at_once() -> None:
    """And sympy is as before when the block ends."""
    looked = []

    class Part(sympy.Symbol):
        @property
        def is_number(self) -> bool:
            looked.append(self)
            return False

    before = Expr.__dict__["is_number"]
    whole = 3 * Part("p") + 7
    with is_number_cached():
        assert not whole.is_number
        found = len(looked)
        assert found
        assert not whole.is_number
        assert len(looked) == found
    assert Expr.__dict__["is_number"] is before
