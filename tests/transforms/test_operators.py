"""What we read out of operators' schemas."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from transforms.graph.schemas import (
    bound_arguments,
    has_effect,
    is_functional,
    is_quantisation,
    is_random,
    is_transposed_matrix,
    underlying,
)

aten = torch.ops.aten


def _call(target: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
    """A call on placeholders, the first of which is a 3 x 3 matrix."""
    graph = torch.fx.Graph()
    matrix = graph.placeholder("matrix")
    matrix.meta["val"] = torch.empty(3, 3)
    return graph.call_function(target, tuple(matrix if a == "x" else a for a in args), kwargs)


def test_arguments_are_bound_by_name_with_defaults() -> None:
    """Positional, keyword and left-out arguments end up in one mapping."""
    node = _call(aten.add.Tensor, "x", 2, alpha=3)
    assert bound_arguments(node) == {"self": node.args[0], "other": 2, "alpha": 3}
    assert bound_arguments(_call(aten.add.Tensor, "x", 2))["alpha"] == 1


@pytest.mark.parametrize(
    ("node", "random"),
    [
        (_call(aten.rand_like.default, "x"), True),
        (_call(aten.dropout.default, "x", 0.5, True), True),
        (_call(aten.dropout.default, "x", 0.5, False), False),
        (_call(aten.scaled_dot_product_attention.default, "x", "x", "x"), False),
        (_call(aten.scaled_dot_product_attention.default, "x", "x", "x", None, 0.1), True),
        (_call(aten.empty.memory_format, [3]), True),
        (_call(aten.exp.default, "x"), False),
    ],
)
def test_random_operators(node: torch.fx.Node, random: bool) -> None:
    """An operator that may draw numbers is random only where its arguments make it."""
    assert is_random(node) == random
    assert is_functional(node) != random


@pytest.mark.parametrize(
    "node",
    [
        _call(aten.add_.Tensor, "x", 1),
        _call(aten._assert_async.msg, "x", "no"),
        _call(aten.batch_norm.default, "x", None, None, "x", "x", True, 0.1, 1e-5, False),
        _call(print, "x"),
    ],
)
def test_effects(node: torch.fx.Node) -> None:
    """Writes, assertions, training statistics and unknown Python are effects."""
    assert has_effect(node)


@pytest.mark.parametrize(
    ("node", "transposed"),
    [
        (_call(aten.t.default, "x"), True),
        (_call(aten.permute.default, "x", [-1, 0]), True),
        (_call(aten.permute.default, "x", [0, 1]), False),
        (_call(aten.transpose.int, "x", -1, -2), True),
        (_call(aten.transpose.int, "x", 1, -1), False),
        (_call(aten.exp.default, "x"), False),
    ],
)
def test_transposed_matrices(node: torch.fx.Node, transposed: bool) -> None:
    """All spellings of a transpose, and none that only looks like one."""
    assert is_transposed_matrix(node) == transposed


def test_quantisation_and_underlying() -> None:
    """Conversions are known by name; an operator of ATen is its own underlying one."""
    assert is_quantisation(aten.fake_quantize_per_tensor_affine.default)
    assert not is_quantisation(aten.add.Tensor)
    assert underlying(aten.add.Tensor) is aten.add.Tensor
    assert underlying(print) is print
