"""Folds inference batch normalisation into the convolution before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from transforms.base import GraphPass, Journal
from zoo.errors import PassError

if TYPE_CHECKING:
    from torch.fx import Node

    from transforms.editor import ProgramEditor

__all__ = ["FoldBatchNorm"]

aten = torch.ops.aten

_CONVOLUTIONS = (
    aten.conv1d.default,
    aten.conv2d.default,
    aten.conv3d.default,
    aten.convolution.default,
)


class _Norm(NamedTuple):
    """The operands of y = (x - mean) / sqrt(var + eps) * scale + shift."""

    source: Node
    scale: Node | None
    shift: Node | None
    mean: Node
    var: Node
    eps: float


class FoldBatchNorm(GraphPass):
    """Replaces BatchNorm(Conv(x, w, b)) with Conv(x, w', b').

    With g = scale / sqrt(var + eps) per output channel: w' = w * g and b' = (b - mean) * g + shift.
    (Ioffe and Szegedy, "Batch Normalization", 2015, algorithm 2, step 11.) The factors are formed
    in float64 and rounded once.

    Refuses when the convolution's result has another user, when a weight or a statistic is not a
    constant, when a weight is shared with another node, and for transposed convolutions.
    """

    name = "fold_batch_norm"
    summary = "Replaces BatchNorm(Conv(x)) with Conv(x)"

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Fold every batch normalisation that may be folded."""
        for node in editor.calls(
            aten.batch_norm.default, aten._native_batch_norm_legit_no_training.default
        ):
            norm = _read(node)
            if norm is None or norm.source.target not in _CONVOLUTIONS:
                continue
            reason = _refusal(editor, node, norm)
            if reason:
                journal.refused(node, reason)
            else:
                _fold(editor, node, norm)
                journal.changed(f"folded {node.name} into {norm.source.name}")


def _read(node: Node) -> _Norm | None:
    """The operands, in either of the two spellings; None where batch statistics are asked for."""
    if node.target is aten.batch_norm.default:
        source, scale, shift, mean, var, training, _, eps, _ = node.args
        return None if training else _Norm(source, scale, shift, mean, var, eps)  # type: ignore[arg-type]
    source, scale, shift, mean, var, _, eps = node.args
    return _Norm(source, scale, shift, mean, var, eps)  # type: ignore[arg-type]


def _refusal(editor: ProgramEditor, node: Node, norm: _Norm) -> str | None:
    conv = norm.source
    weight, bias = _weight(conv), _bias(conv)
    if len(conv.users) > 1:
        return f"{conv.name} has other users, which need its result unnormalised"
    if conv.target is aten.convolution.default and conv.args[6]:
        return f"{conv.name} is transposed: its output channels are not the weight's first axis"
    for operand in (weight, bias, norm.scale, norm.shift, norm.mean, norm.var):
        if operand is not None and editor.constant(operand) is None:
            return f"{operand} is not a constant"
    if any(user is not conv for user in weight.users):
        return f"the weight {editor.constant_name(weight)} is shared with another node"
    if any(user.args[1:] != (0,) for user in _statistics_readers(node)):
        return f"the statistics that {node.name} returns are used"
    return None


def _weight(conv: Node) -> Node:
    return conv.args[1]  # type: ignore[return-value]


def _bias(conv: Node) -> Node | None:
    _, _, *rest = conv.args
    return rest[0] if rest else conv.kwargs.get("bias")  # type: ignore[return-value]


def _statistics_readers(node: Node) -> list[Node]:
    """The users that pick from the norm's tuple; none where the norm returns a single tensor."""
    return [] if node.target is aten.batch_norm.default else list(node.users)


def _fold(editor: ProgramEditor, node: Node, norm: _Norm) -> None:
    conv = norm.source
    weight_node, bias_node = _weight(conv), _bias(conv)
    dtype = weight_node.meta["val"].dtype
    weight = _tensor(editor, weight_node)
    mean, var = _tensor(editor, norm.mean), _tensor(editor, norm.var)
    scale = torch.ones_like(mean) if norm.scale is None else _tensor(editor, norm.scale)
    shift = torch.zeros_like(mean) if norm.shift is None else _tensor(editor, norm.shift)
    bias = torch.zeros_like(mean) if bias_node is None else _tensor(editor, bias_node)
    gain = scale / torch.sqrt(var + norm.eps)
    name = editor.constant_name(weight_node)
    folded = weight * gain.reshape(-1, *[1] * (weight.dim() - 1))
    new_weight = editor.add_constant(f"{name}_folded", folded.to(dtype))
    new_bias = editor.add_constant(f"{name}_folded_bias", ((bias - mean) * gain + shift).to(dtype))
    rest = {k: v for k, v in conv.kwargs.items() if k != "bias"}
    with editor.graph.inserting_before(node):
        fresh = editor.call(
            conv.target, conv.args[0], new_weight, new_bias, *conv.args[3:], like=conv, **rest
        )
    for reader in _statistics_readers(node):
        editor.replace(reader, fresh)
    editor.replace(node, fresh)


def _tensor(editor: ProgramEditor, node: Node) -> torch.Tensor:
    value = editor.constant(node)
    if value is None:
        raise PassError("pass fold_batch_norm", f"{node} was not refused, yet is no constant")
    return value.detach().double()
