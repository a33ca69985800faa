"""Reads operators that work on each position alone: affine maps, channel norms, elementwise."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from transforms.editor import fake_value
from transforms.operators import bound_arguments
from transforms.passes.layout_operators import (
    constant_matrix,
    constant_value,
    is_layout,
    is_tensor,
)

if TYPE_CHECKING:
    from torch.fx import Node

    from transforms.editor import ProgramEditor

__all__ = ["Affine", "ChannelNorm", "Elementwise", "Step", "read_step", "weight_name"]

aten = torch.ops.aten

_MATRIX = 2  # rank

_ELEMENTWISE = frozenset({
    aten.relu.default, aten.relu6.default, aten.gelu.default, aten.silu.default,
    aten.mish.default, aten.elu.default, aten.selu.default, aten.celu.default,
    aten.leaky_relu.default, aten.softplus.default, aten.log_sigmoid.default,
    aten.sigmoid.default, aten.tanh.default, aten.erf.default,
    aten.hardswish.default, aten.hardsigmoid.default, aten.hardtanh.default,
    aten.clamp.default, aten.clamp_min.default, aten.clamp_max.default,
    aten.abs.default, aten.neg.default, aten.exp.default, aten.log.default,
    aten.sqrt.default, aten.rsqrt.default, aten.reciprocal.default, aten.square.default,
    aten.sin.default, aten.cos.default, aten.pow.Tensor_Scalar, aten.rsub.Scalar,
    aten.add.Scalar, aten.sub.Scalar, aten.mul.Scalar, aten.div.Scalar,
    aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.div.Tensor_mode,
    aten.maximum.default, aten.minimum.default, aten.where.self,
})  # fmt: skip

_CASTS = frozenset({aten._to_copy.default, aten.to.dtype})


@dataclass(frozen=True, eq=False)
class Affine:
    """y[..., o, ...] = sum over c of weight[o, c] * x[..., c, ...] + bias[o], along one axis."""

    operand: Node
    axis: int  # of the operand, not negative
    weight: torch.Tensor  # (out features, in features)
    bias: torch.Tensor | None  # (out features,)
    name: str  # the weight's qualified name


@dataclass(frozen=True, eq=False)
class ChannelNorm:
    """Layer normalisation over the operand's last axis."""

    operand: Node
    weight: torch.Tensor | None
    bias: torch.Tensor | None
    eps: float
    name: str


@dataclass(frozen=True, eq=False)
class Elementwise:
    """An operator on tensors of one shape and on constants that broadcast to it."""

    operands: tuple[Node, ...]
    constants: dict[Node, torch.Tensor]


Step = Affine | ChannelNorm | Elementwise


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
    if _is_elementwise(node):
        return _elementwise(editor, node)
    return None


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
    if alpha != 1:
        weight = (weight.double() * alpha).to(weight.dtype)
    bias = None
    if beta != 0:
        added = constant_value(editor, named["self"])
        if added is None:
            return f"what it adds, {named['self']}, is not a constant"
        if added.dim() == _MATRIX and added.shape[0] != 1:
            return "what it adds differs from row to row"
        bias = added.reshape(-1).expand(weight.shape[1])
        bias = bias if beta == 1 else (bias.double() * beta).to(weight.dtype)
    return _affine(editor, named["mat2"], weight.t(), operand=named["mat1"], bias=bias)


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
    return Affine(operand, axis % rank, weight, bias, weight_name(editor, source))


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
    return ChannelNorm(named["input"], values[0], values[1], named["eps"], name)


def _is_elementwise(node: Node) -> bool:
    if node.target in _ELEMENTWISE:
        return True
    if node.target is aten.dropout.default:
        return not bound_arguments(node)["train"]
    if node.target not in _CASTS:
        return False
    extra = {k: v for k, v in bound_arguments(node).items() if v not in {None, False}}
    return set(extra) == {"self", "dtype"}


def _elementwise(editor: ProgramEditor, node: Node) -> Elementwise | None:
    operands, constants = [], {}
    for operand in node.all_input_nodes:
        value = constant_value(editor, operand)
        if value is not None:
            constants[operand] = value
        elif is_tensor(operand):
            operands.append(operand)
    if not operands or not is_tensor(node):
        return None
    return Elementwise(tuple(operands), constants)
