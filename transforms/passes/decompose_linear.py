"""Splits linear layers into a matrix product and an addition, for targets without addmm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from transforms.graph.editor import ProgramEditor
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.schemas import bound_arguments, is_quantisation
from transforms.graph.traced import write

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

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Decompose every linear and addmm that may be."""
        transposed: dict[Node, Node] = {}
        for node in editor.calls(aten.linear.default, aten.addmm.default):
            reason = _refusal(node)
            if reason:
                journal.refused(node, reason)
                continue
            journal.changed(f"decomposed {node.name}")
            given = bound_arguments(node)
            if node.target is aten.addmm.default:
                fresh = write(editor, _addmm, given, like=node)
            else:
                with editor.graph.inserting_before(node):
                    given["weight"] = _transposed(editor, node, given["weight"], transposed)
                fresh = write(editor, _linear, given, like=node)
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


def _linear(given: Mapping[str, Any]) -> Tensor:
    rows, weight, bias = given["input"], given["weight"], given["bias"]
    product = rows.mm(weight) if rows.dim() == _MATRIX else rows @ weight
    return product if bias is None else _sum(product, bias)


def _transposed(
    editor: ProgramEditor, node: Node, weight: Node, transposed: dict[Node, Node]
) -> Node:
    """Return the weight as (in, out): a constant, or a permute where others need the weight."""
    if weight in transposed:
        return transposed[weight]
    value = editor.constant(weight)
    if value is None or not all(_is_weight_of(user, weight) for user in weight.users):
        return editor.call(aten.permute.default, weight, [1, 0], like=node)
    name = f"{editor.constant_name(weight)}_transposed"
    transposed[weight] = editor.add_constant(name, value.detach().t().contiguous())
    return transposed[weight]


def _is_weight_of(user: Node, weight: Node) -> bool:
    """Return whether the user is a linear layer to decompose whose weight this is."""
    if user.target is not aten.linear.default or _refusal(user):
        return False
    bound = bound_arguments(user)
    return weight is bound["weight"] and weight not in {bound["input"], bound["bias"]}


def _addmm(given: Mapping[str, Any]) -> Tensor:
    product = _scaled(given["mat1"].mm(given["mat2"]), given["alpha"])
    return product if given["beta"] == 0 else _sum(product, _scaled(given["self"], given["beta"]))


def _scaled(value: Tensor, factor: Any) -> Tensor:
    return value if factor == 1 else value * factor


def _sum(product: Tensor, bias: Tensor) -> Tensor:
    """Add product and bias in a form that Inductor does not fuse back to addmm."""
    if product.dim() != _MATRIX:
        return product + bias
    while bias.dim() <= _MATRIX:
        bias = bias.unsqueeze(0)
    return (product + bias).squeeze((0,))
