"""Folds inference batch normalisation into the convolution or linear layer before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch.fx import Node

from transforms.graph.editor import ProgramEditor
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.schemas import CONVOLUTIONS, bound_arguments, tensors_of
from zoo.errors import PassError

aten = torch.ops.aten

_TRANSPOSED = (
    aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input,
)  # fmt: skip
_LAYERS = (aten.linear.default, *CONVOLUTIONS, *_TRANSPOSED)
_NORMS = (aten.batch_norm.default, aten._native_batch_norm_legit_no_training.default)
_OPERANDS = ("input", "weight", "bias", "running_mean", "running_var", "eps")  # in either spelling


class _Norm(NamedTuple):
    """The operands of y = (x - mean) / sqrt(var + eps) * scale + shift."""

    source: Node
    scale: Node | None
    shift: Node | None
    mean: Node
    var: Node
    eps: float


class _Layer(NamedTuple):
    node: Node
    weight: Node
    bias: Node | None
    groups: int  # of a transposed convolution, whose weight is (in, out / groups, ...); else 0


class FoldBatchNorm(GraphPass):
    """Replaces BatchNorm(f(x, w, b)) with f(x, w', b') for convolutions and linear layers f.

    With g = scale / sqrt(var + eps) per output channel: w' = w * g and b' = (b - mean) * g + shift.
    (Ioffe and Szegedy, "Batch Normalization", 2015, algorithm 2, step 11.) The factors are computed
    in float64 and rounded once. f may be a convolution, a transposed one (also grouped: its output
    channels run over the groups and the weight's second axis) or linear.

    Refuses if the layer's result has another user, a weight or a statistic is not constant, a
    weight is shared, the norm's channels are not the layer's (a linear layer over sequences, a
    convolution without a batch axis), the norm changes the dtype, or a folded weight overflows its
    dtype or is so small that half precision would keep few of its digits.
    """

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Fold every batch normalisation that can be folded."""
        for node in editor.calls(*_NORMS):
            given = bound_arguments(node)
            for reader in _statistics_readers(node):
                if reader.args[1] != 0 and reader.users:  # torch's GPU sizes differ
                    mean, wanted = given["running_mean"], {"dtype": reader.meta["val"].dtype}
                    none = editor.call(aten.new_zeros.default, mean, [0], like=node, **wanted)
                    editor.replace(reader, none)
                    journal.changed(f"{reader.name} has no elements in inference")
            layer = _layer(given["input"])
            if layer is None or given.get("training"):  # normalised by the batch's statistics
                continue
            norm = _Norm(*(given[name] for name in _OPERANDS))
            reason = next(_refusals(editor, node, norm, layer), None)
            reason = reason or _fold(editor, node, norm, layer)
            if reason:
                journal.refused(node, reason)
            else:
                journal.changed(f"folded {node.name} into {norm.source.name}")


def _layer(node: Node) -> _Layer | None:
    if node.target not in _LAYERS:
        return None
    bound = bound_arguments(node)
    transposed = node.target in _TRANSPOSED or bound.get("transposed")
    return _Layer(node, bound["weight"], bound["bias"], bound["groups"] if transposed else 0)


def _refusals(editor: ProgramEditor, node: Node, norm: _Norm, layer: _Layer) -> Iterator[str]:
    source, made = layer.node, layer.node.meta["val"]
    if len(source.users) > 1:
        yield f"{source.name} has other users, which need its result unnormalised"
    for operand in (layer.weight, layer.bias, norm.scale, norm.shift, norm.mean, norm.var):
        if operand is not None and editor.constant(operand) is None:
            yield f"{operand} is not a constant"
    if made.dim() != layer.weight.meta["val"].dim():
        yield f"the norm's channels are not the output features of {source.name}"
    if layer.bias is not None and layer.bias.meta["val"].shape != norm.mean.meta["val"].shape:
        yield f"the bias of {source.name} is not one value a channel"
    if set(layer.weight.users) != {source}:
        yield f"the weight {editor.constant_name(layer.weight)} is shared with another node"
    if tensors_of(node)[0].dtype is not made.dtype:
        yield f"{node.name} changes the dtype"


def _statistics_readers(node: Node) -> list[Node]:
    """Return the users that select from the norm's tuple; none if it returns a single tensor."""
    return [] if node.target is aten.batch_norm.default else list(node.users)


def _fold(editor: ProgramEditor, node: Node, norm: _Norm, layer: _Layer) -> str | None:
    """Replace the norm by the folded layer; or leave it unchanged and return the reason."""
    dtype = layer.weight.meta["val"].dtype
    mean, var = _tensor(editor, norm.mean), _tensor(editor, norm.var)
    scale = torch.ones_like(mean) if norm.scale is None else _tensor(editor, norm.scale)
    shift = torch.zeros_like(mean) if norm.shift is None else _tensor(editor, norm.shift)
    bias = torch.zeros_like(mean) if layer.bias is None else _tensor(editor, layer.bias)
    gain = scale / torch.sqrt(var + norm.eps)
    exact = _scaled(_tensor(editor, layer.weight), gain, layer)
    weight, offset = exact.to(dtype), ((bias - mean) * gain + shift).to(dtype)
    if not (weight.isfinite().all() and offset.isfinite().all()):
        return f"a folded weight is beyond {dtype}"
    if _is_rounded_away(exact, weight, gain, layer):
        return f"a folded weight is too small for {dtype}: it would keep few of its digits"
    name = editor.constant_name(layer.weight)
    given = bound_arguments(layer.node) | {
        "weight": editor.add_constant(f"{name}_folded", weight),
        "bias": editor.add_constant(f"{name}_folded_bias", offset),
    }
    fresh = editor.call(layer.node.target, *given.values(), like=layer.node)
    for reader in _statistics_readers(node):
        editor.replace(reader, fresh)
    editor.replace(node, fresh)
    return None


def _scaled(weight: torch.Tensor, gain: torch.Tensor, layer: _Layer) -> torch.Tensor:
    """Return the weight, as the call reads it, with every output channel scaled by its gain."""
    if not layer.groups:
        return weight * gain.reshape(-1, *[1] * (weight.dim() - 1))
    rest = [1] * (weight.dim() - 2)
    grouped = weight.reshape(layer.groups, -1, *weight.shape[1:])
    return (grouped * gain.reshape(layer.groups, 1, -1, *rest)).reshape(weight.shape)


def _is_rounded_away(
    exact: torch.Tensor, rounded: torch.Tensor, gain: torch.Tensor, layer: _Layer
) -> bool:
    """Return whether more is lost than rounding loses on numbers in the dtype's normal range.

    Half precision has few exponents: a small gain makes a channel's weights subnormal. Both norms
    are taken without the gain, so that no channel is hidden by a larger one.
    """
    undone = torch.where(gain == 0, 1.0, 1.0 / gain)
    parts = rounded.double() - exact, exact
    lost, whole = (float(_scaled(part, undone, layer).norm()) for part in parts)
    return lost > torch.finfo(rounded.dtype).eps * whole


def _tensor(editor: ProgramEditor, node: Node) -> torch.Tensor:
    value = editor.constant(node)
    if value is None:
        raise PassError("pass fold_batch_norm", f"{node} was not refused, yet is no constant")
    return value.detach().double()
