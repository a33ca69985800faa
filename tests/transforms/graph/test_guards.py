"""What is remembered of expressions and operators answers as sympy and torch do."""

from __future__ import annotations

import pytest
import sympy
import torch
from sympy.core.expr import Expr
from torch import Tensor
from torch.export import ExportedProgram, exported_program

from transforms.graph.guards import is_number_cached
from transforms.graph.retrace import composites_prepared_once

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


class _Composites(torch.nn.Module):
    """A layer that torch keeps whole, and one that a table writes out."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.silu(self.layer(x)).softmax(-1)


def _lines(program: ExportedProgram) -> str:
    return program.graph_module.print_readable(print_output=False, include_stride=True)


@pytest.mark.parametrize("written_out", ["linear", "silu"])
def test_composite_operators_are_prepared_as_torch_does(written_out: str) -> None:
    """The first and the second time, and afterwards all have the kernels that they had."""
    table = {getattr(torch.ops.aten, written_out).default: _WAYS[written_out]}
    program = torch.export.export(_Composites(), (torch.ones(2, 4),))
    expected = _lines(program.run_decompositions(dict(table)))
    linear, override = torch.ops.aten.linear.default, exported_program.__dict__[_OVERRIDE]
    before = dict(linear.py_kernels)
    for _ in range(2):
        with composites_prepared_once():
            assert _lines(program.run_decompositions(dict(table))) == expected
        assert linear.py_kernels == before
        assert exported_program.__dict__[_OVERRIDE] is override


_OVERRIDE = "_override_composite_implicit_decomp"
_WAYS = {
    "linear": lambda x, weight, bias: x @ weight.t() + bias,
    "silu": lambda x: x * torch.sigmoid(x),
}
