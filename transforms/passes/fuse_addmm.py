"""Joins a matrix product and the addition after it, for targets that do both in one kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.layouts import layout
from transforms.graph.schemas import bound_arguments, is_quantisation, is_transposed_matrix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.fx import Node

    from transforms.graph.aliasing import Aliasing
    from transforms.graph.editor import ProgramEditor

aten = torch.ops.aten

_PRODUCTS = (aten.mm.default, aten.matmul.default, aten.linear.default)
_MATRIX = 2


class _Sum(NamedTuple):
    """alpha * product + beta * bias, with the product's operands as its call has them."""

    product: Node
    bias: Node
    alpha: Any
    beta: Any


class FuseAddmm(GraphPass):
    """Replaces mm(x, y) + b with addmm(b, x, y), and linear(x, w) + b with linear(x, w, b).

    `add(p, b, alpha=a)` is p + a * b: the factor becomes addmm's beta, or its alpha where the
    product is the second operand. A product of a matrix with anything that broadcasts to the
    product's shape becomes addmm; one of higher rank becomes linear when b is one value a feature.

    Refuses a product with another user (it would be computed twice), a sum that promotes the dtype
    or broadcasts the product, integers, a factor of zero (addmm skips what add would multiply, NaN
    among it), operands written between product and sum, and quantised operands.
    """

    name = "fuse_addmm"
    summary = "Replaces mm(x, y) + b with addmm(b, x, y)"

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Fuse every sum that may be fused."""
        aliasing = editor.aliasing()
        for node in editor.calls(aten.add.Tensor):
            bound = bound_arguments(node)
            one, other, alpha = bound["self"], bound["other"], bound["alpha"]
            sums = _sum(one, other, 1, alpha), _sum(other, one, alpha, 1)
            candidates = [s for s in sums if s is not None]
            reasons = [next(_refusals(aliasing, node, candidate), None) for candidate in candidates]
            if None in reasons:
                found = candidates[reasons.index(None)]
                fresh = _fuse(editor, node, found)
                aliasing.adopt(fresh, node)
                editor.replace(node, fresh)
                journal.changed(f"fused {found.product.name} and {node.name}")
            elif reasons:
                journal.refused(node, str(reasons[0]))


def _sum(product: Any, bias: Any, alpha: Any, beta: Any) -> _Sum | None:
    if not isinstance(product, torch.fx.Node) or not isinstance(bias, torch.fx.Node):
        return None
    if product.target not in _PRODUCTS or product is bias:
        return None
    if product.target is aten.linear.default and bound_arguments(product)["bias"] is not None:
        return None
    x, y = product.args[:2]
    if y.meta["val"].dim() != _MATRIX or x.meta["val"].dim() < 1:  # type: ignore[union-attr]
        return None
    return _Sum(product, bias, alpha, beta)


def _refusals(aliasing: Aliasing, node: Node, found: _Sum) -> Iterator[str]:
    """The reasons to leave a product and its sum apart."""
    product, bias = found.product, found.bias
    made, added = product.meta["val"], bias.meta["val"]
    if len(product.users) > 1:
        yield f"{product.name} has other users, which need it without the sum"
    if not made.is_floating_point() or added.dtype is not made.dtype:
        yield f"{product.name} is {made.dtype} and {bias.name} is {added.dtype}"
    if layout(node.meta["val"])[1] != layout(made)[1]:
        yield f"the sum broadcasts {product.name}"
    for operand in (*product.all_input_nodes, bias):
        if is_quantisation(operand.target):
            yield f"{operand.name} makes it a quantised layer"
    if any(aliasing.is_written_between(n, product, node) for n in product.all_input_nodes):
        yield f"an operand of {product.name} is written before the sum"
    if aliasing.is_written(product):
        yield "the product is written in place"
    yield from _factor_refusals(found)


def _factor_refusals(found: _Sum) -> Iterator[str]:
    factors = (found.alpha, found.beta)
    if not all(isinstance(factor, (int, float)) for factor in factors):
        yield "a factor is computed"
    elif 0 in factors:
        yield "a factor of zero would hide NaN and infinity"
    if found.product.meta["val"].dim() == _MATRIX:
        return
    if not _is_feature_bias(found):
        yield f"{found.bias.name} is not one value a feature"
    if factors != (1, 1):
        yield "linear takes no factor"


def _is_feature_bias(found: _Sum) -> bool:
    """Whether the bias has one value for each element of the product's last axis."""
    made, added = layout(found.product.meta["val"]), layout(found.bias.meta["val"])
    return bool(added[1] == made[1][-1:])


def _fuse(editor: ProgramEditor, node: Node, found: _Sum) -> Node:
    product, bias = found.product, found.bias
    x, y = product.args[:2]
    is_linear = product.target is aten.linear.default
    plain = (found.alpha, found.beta) == (1, 1) and _is_feature_bias(found)
    with editor.graph.inserting_before(node):
        if plain and (is_linear or product.meta["val"].dim() != _MATRIX):
            weight = y if is_linear else _flipped(editor, node, y)
            return editor.call(aten.linear.default, x, weight, bias, like=node)
        matrix = _flipped(editor, node, y) if is_linear else y
        factors = {k: v for k, v in (("beta", found.beta), ("alpha", found.alpha)) if v != 1}
        return editor.call(aten.addmm.default, bias, x, matrix, like=node, **factors)


def _flipped(editor: ProgramEditor, node: Node, matrix: Any) -> Node:
    """The matrix transposed; the original where it is itself a transpose."""
    if is_transposed_matrix(matrix):
        return matrix.args[0]  # type: ignore[no-any-return]
    return editor.call(aten.permute.default, matrix, [1, 0], like=node)
