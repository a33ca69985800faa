"""Splits linear layers into a matrix product and an addition, for targets without addmm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.schemas import bound_arguments, is_quantisation

if TYPE_CHECKING:
    from torch.fx import Node

    from transforms.graph.editor import ProgramEditor

aten = torch.ops.aten

_MATRIX = 2


class DecomposeLinear(GraphPass):
    """Replaces linear(x, w, b) with matmul(x, t(w)) + b, and addmm with mm and additions.

    The weight is transposed at compile time where linear layers alone use it; a weight that has
    another use stays, and a permute reads it. `addmm(b, x, y, beta, alpha)` becomes
    beta * b + alpha * mm(x, y) with the factors left out where they are one; a beta of zero drops
    b, as addmm defines it.

    Inductor fuses mm(x, y) + b back to addmm wherever b's rank does not exceed the product's. So b
    is added to a matrix product as (1, 1, features) and the leading axis is dropped after: that
    form holds for every number of rows, one among them.

    Refuses a quantised operand, which a backend recognises by the linear layer it feeds, and a
    weight that is a vector.
    """

    name = "decompose_linear"
    summary = "Replaces linear(x, w, b) with matmul(x, t(w)) + b"

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Decompose every linear and addmm that may be."""
        transposed: dict[Node, Node] = {}
        for node in editor.calls(aten.linear.default, aten.addmm.default):
            reason = _refusal(node)
            if reason:
                journal.refused(node, reason)
                continue
            journal.changed(f"decomposed {node.name}")
            with editor.graph.inserting_before(node):
                if node.target is aten.addmm.default:
                    fresh = _addmm(editor, node)
                else:
                    fresh = _linear(editor, node, transposed)
            editor.replace(node, fresh)


def _refusal(node: Node) -> str | None:
    for operand in node.all_input_nodes:
        if is_quantisation(operand.target):
            return f"{operand.name} makes it a quantised layer"
    if node.target is aten.linear.default:
        weight = bound_arguments(node)["weight"]
        if weight.meta["val"].dim() != _MATRIX:
            return f"the weight {weight.name} is a vector"
    return None


def _linear(editor: ProgramEditor, node: Node, transposed: dict[Node, Node]) -> Node:
    bound = bound_arguments(node)
    x, bias = bound["input"], bound["bias"]
    weight = _transposed(editor, node, bound["weight"], transposed)
    matrix = x.meta["val"].dim() == _MATRIX
    product = editor.call(aten.mm.default if matrix else aten.matmul.default, x, weight, like=node)
    if bias is None:
        return product
    return _added(editor, node, product, bias)


def _transposed(
    editor: ProgramEditor, node: Node, weight: Node, transposed: dict[Node, Node]
) -> Node:
    """The weight as (in, out): a constant of its own, or a permute where others need the weight."""
    if weight in transposed:
        return transposed[weight]
    value = editor.constant(weight)
    if value is None or not all(_is_weight_of(user, weight) for user in weight.users):
        return editor.call(aten.permute.default, weight, [1, 0], like=node)
    name = f"{editor.constant_name(weight)}_transposed"
    transposed[weight] = editor.add_constant(name, value.detach().t().contiguous())
    return transposed[weight]


def _is_weight_of(user: Node, weight: Node) -> bool:
    """Whether the user is a linear layer that this pass decomposes and reads `weight` as weight."""
    if user.target is not aten.linear.default or _refusal(user):
        return False
    bound = bound_arguments(user)
    return weight is bound["weight"] and weight not in {bound["input"], bound["bias"]}


def _addmm(editor: ProgramEditor, node: Node) -> Node:
    bound = bound_arguments(node)
    product = editor.call(aten.mm.default, bound["mat1"], bound["mat2"], like=node)
    product = _scaled(editor, node, product, bound["alpha"])
    if bound["beta"] == 0:
        return product
    bias = _scaled(editor, node, bound["self"], bound["beta"])
    return _added(editor, node, product, bias)


def _scaled(editor: ProgramEditor, node: Node, value: Node, factor: Any) -> Node:
    return value if factor == 1 else editor.call(aten.mul.Tensor, value, factor, like=node)


def _added(editor: ProgramEditor, node: Node, product: Node, bias: Node) -> Node:
    """The sum of product and bias, in a form that Inductor does not fuse back to addmm."""
    if product.meta["val"].dim() != _MATRIX:
        return editor.call(aten.add.Tensor, product, bias, like=node)
    for _ in range(_MATRIX + 1 - bias.meta["val"].dim()):
        bias = editor.call(aten.unsqueeze.default, bias, 0, like=node)
    total = editor.call(aten.add.Tensor, product, bias, like=node)
    return editor.call(aten.squeeze.dims, total, [0], like=node)
