"""Reads operators that work on each position alone: affine maps, channel norms, elementwise."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from transforms.graph.editor import fake_value
from transforms.graph.schemas import bound_arguments, is_elementwise
from transforms.passes.layout_operators import (
    constant_matrix,
    constant_value,
    is_layout,
    is_tensor,
)

if TYPE_CHECKING:
    from torch.fx import Node

    from transforms.graph.editor import ProgramEditor

aten = torch.ops.aten

_MATRIX = 2  # rank


@dataclass(frozen=True, eq=False)
class Step:
    """An operator on each position of `operands`; what is not among them is constant."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Affine(Step):
    """y[..., o, ...] = sum over c of weight[o, c] * x[..., c, ...] + bias[o], along one axis."""

    axis: int  # of the operand, not negative
    weight: torch.Tensor  # (out features, in features)
    bias: torch.Tensor | None  # (out features,)
    name: str  # the weight's qualified name


@dataclass(frozen=True, eq=False)
class ChannelNorm(Step):
    """Layer normalisation over the operand's last axis."""

    weight: torch.Tensor | None
    bias: torch.Tensor | None
    eps: float
    name: str


@dataclass(frozen=True, eq=False)
class Elementwise(Step):
    """An operator on tensors of one shape and on constants that broadcast to it."""

    constants: dict[Node, torch.Tensor]


def read_step(editor: ProgramEditor, node: Node) -> Step | str | None:
    """What `node` does to each position.

    Returns:
        The step; a reason where `node` is an affine map that cannot be taken; None for any other
        operator. Whether axes fit is not looked at here.
    """
    if node.target in _AFFINE:
        if not fake_value(node).dtype.is_floating_point:
            return "it is not of a floating-point type"
        return _AFFINE[node.target](editor, node)
    if node.target is aten.layer_norm.default:
        return _channel_norm(editor, node)
    if _is_norm_result(node):
        return _channel_norm(editor, node.args[0])
    return _elementwise(editor, node) if is_elementwise(node) else None


def weight_name(editor: ProgramEditor, node: Node) -> str:
    """The qualified name of the constant behind `node`, also through layout operators."""
    while node.op == "call_function" and is_layout(node):
        node = node.args[0]  # type: ignore[assignment]
    return editor.constant_name(node)


def _linear(editor: ProgramEditor, node: Node) -> Affine | str:
    named = bound_arguments(node)
    weight = constant_value(editor, named["weight"])
    bias = constant_value(editor, named["bias"])
    if weight is None or weight.dim() != _MATRIX:
        return f"its weight {named['weight']} is not a constant matrix"
    if named["bias"] is not None and bias is None:
        return f"its bias {named['bias']} is not a constant"
    return _affine(editor, named["weight"], weight, operand=named["input"], bias=bias)


def _addmm(editor: ProgramEditor, node: Node) -> Affine | str:
    """Reads beta * self + alpha * (mat1 @ mat2); with beta 0 self is not even looked at."""
    named = bound_arguments(node)
    alpha, beta = named["alpha"], named["beta"]
    if isinstance(alpha, torch.fx.Node) or isinstance(beta, torch.fx.Node):
        return "its alpha or beta is not a number"
    weight = constant_value(editor, named["mat2"])
    if weight is None:
        return f"its second factor {named['mat2']} is not a constant"
    bias = None
    if beta != 0:
        added = constant_value(editor, named["self"])
        if added is None:
            return f"what it adds, {named['self']}, is not a constant"
        if added.dim() == _MATRIX and added.shape[0] != 1:
            return "what it adds differs from row to row"
        bias = _times(added.reshape(-1).expand(weight.shape[1]), beta)
    weight = _times(weight, alpha).t()
    return _affine(editor, named["mat2"], weight, operand=named["mat1"], bias=bias)


def _times(value: torch.Tensor, factor: float) -> torch.Tensor:
    return value if factor == 1 else (value.double() * factor).to(value.dtype)


def _product(editor: ProgramEditor, node: Node) -> Affine | str | None:
    """Mm, bmm and matmul: the constant may be the right factor, or the left one."""
    left: Any = node.args[0]
    right: Any = node.args[1]
    weight = constant_matrix(editor, right)
    if weight is not None:
        return _affine(editor, right, weight.t(), operand=left)
    weight = constant_matrix(editor, left)
    if weight is None:
        return None  # a product of activations: attention, not an affine map
    if fake_value(right).dim() < _MATRIX:
        return f"its constant factor {left} is applied to a single vector"
    return _affine(editor, left, weight, operand=right, axis=-2)


def _affine(
    editor: ProgramEditor,
    source: Node,
    weight: torch.Tensor,
    *,
    operand: Any,
    axis: int = -1,
    bias: torch.Tensor | None = None,
) -> Affine | str:
    """The map of `operand` by `weight`, which is the constant `source` in the right orientation."""
    if constant_value(editor, operand) is not None:
        return "it maps a constant"
    rank = fake_value(operand).dim()
    return Affine((operand,), axis % rank, weight, bias, weight_name(editor, source))


_AFFINE = {
    aten.linear.default: _linear,
    aten.addmm.default: _addmm,
    aten.mm.default: _product,
    aten.bmm.default: _product,
    aten.matmul.default: _product,
}


def _is_norm_result(node: Node) -> bool:
    """Whether `node` is the normalised tensor, and the only thing used, of a native norm."""
    norm = node.args[0] if node.target is operator.getitem else None
    return bool(
        isinstance(norm, torch.fx.Node)
        and norm.target is aten.native_layer_norm.default
        and node.args[1] == 0
        and len(norm.users) == 1
    )


def _channel_norm(editor: ProgramEditor, node: Any) -> ChannelNorm | None:
    named = bound_arguments(node)
    affine = [named["weight"], named["bias"]]
    values = [constant_value(editor, operand) for operand in affine]
    if len(named["normalized_shape"]) != 1 or not is_tensor(named["input"]):
        return None
    if any(o is not None and v is None for o, v in zip(affine, values, strict=True)):
        return None
    source = next((o for o in affine if o is not None), None)
    name = weight_name(editor, source) if source is not None else f"{node.name}.weight"
    return ChannelNorm((named["input"],), values[0], values[1], named["eps"], name)


def _elementwise(editor: ProgramEditor, node: Node) -> Elementwise | None:
    tensors = [n for n in node.all_input_nodes if is_tensor(n)]
    values = {n: constant_value(editor, n) for n in tensors}
    constants = {n: v for n, v in values.items() if v is not None}
    operands = tuple(n for n in tensors if n not in constants)
    return Elementwise(operands, constants) if operands and is_tensor(node) else None
