"""Fuse activations into the convolution or linear layer before them.

A separate loop reads and writes the whole result once more; and for GELU, SiLU and the like it
evaluates an exponential in the vector width of the oldest supported processor, while the kernel
library uses that of the machine it runs on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch.fx import Node

from transforms.graph.editor import ProgramEditor
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.schemas import bound_arguments, for_each_axis
from transforms.passes.lay_out_weights import reads_by_strides

aten = torch.ops.aten

_CONVOLUTIONS = (aten.conv1d.default, aten.conv2d.default, aten.convolution.default)
_SEQUENCE_RANK, _IMAGE_RANK = 3, 4  # of weights, and of batched inputs
_IMAGE_AXES = 2
_MATRIX = 2
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class Activation(NamedTuple):
    """An activation with the name that torch's fused kernels give it."""

    name: str
    scalars: tuple[float, ...] = ()
    algorithm: str = ""

    def of(self, value: torch.Tensor) -> torch.Tensor:
        """Apply the activation to a tensor by torch's own operators."""
        if self.name == "hardtanh":
            low, high = self.scalars
            return torch.nn.functional.hardtanh(value, low, high)
        if self.name == "gelu":
            return torch.nn.functional.gelu(value, approximate=self.algorithm)
        plain = {known.name: operator for operator, known in _PLAIN.items()}
        return value if self.name == "none" else plain[self.name](value)


_PLAIN: dict[OpOverload, Activation] = {
    aten.relu.default: Activation("relu"),
    aten.relu6.default: Activation("hardtanh", (0.0, 6.0)),
    aten.silu.default: Activation("swish"),
    aten.sigmoid.default: Activation("sigmoid"),
    aten.tanh.default: Activation("tanh"),
    aten.hardswish.default: Activation("hardswish"),
    aten.hardsigmoid.default: Activation("hardsigmoid"),
}
ACTIVATIONS = (*_PLAIN, aten.gelu.default, aten.hardtanh.default)


class FuseActivations(GraphPass):
    """Replaces an activation and the convolution or linear layer that it alone reads with one call.

    A convolution of sequences becomes one of images of height 1, as torch has fused kernels only
    for those. Only layers with constant weights are fused: the kernels pack the weights once. A
    fused convolution's result is channels-last, so a program that reads memory by strides is left
    unchanged.
    """

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Fuse each activation with the layer that only it reads."""
        if reads_by_strides(editor.graph):
            return
        for node in editor.calls(*ACTIVATIONS):
            layer = node.args[0]
            if not isinstance(layer, torch.fx.Node) or len(layer.users) != 1:
                continue
            if layer.meta["val"].dtype not in _DTYPES:
                continue
            fused = _fused(editor, layer, activation_of(node), node)
            if fused is not None:
                journal.changed(f"{layer.name} applies {node.name}")
                editor.replace(node, fused)
                editor.graph.erase_node(layer)
                fused.name = layer.name  # reports and readers know it by this name


def activation_of(node: Node) -> Activation:
    """Return the activation that a call of one of `ACTIVATIONS` computes."""
    if node.target is aten.gelu.default:
        return Activation("gelu", (), bound_arguments(node)["approximate"])
    if node.target is aten.hardtanh.default:
        bound = bound_arguments(node)
        return Activation("hardtanh", (float(bound["min_val"]), float(bound["max_val"])))
    return _PLAIN[node.target]  # type: ignore[index]


def _fused(editor: ProgramEditor, layer: Node, activation: Activation, node: Node) -> Node | None:
    """Insert the fused kernel's call before `node`; return None if the layer has no kernel."""
    if layer.target in _CONVOLUTIONS:
        return _fused_convolution(editor, layer, activation, node)
    if layer.target is aten.linear.default:
        return _fused_linear(editor, layer, activation, node)
    return None


def _fused_convolution(
    editor: ProgramEditor, layer: Node, activation: Activation, node: Node
) -> Node | None:
    bound = bound_arguments(layer)
    images, weight = bound["input"], bound["weight"]
    constant = editor.constant(weight)
    if constant is None or bound.get("transposed", False):
        return None
    rank = constant.dim()
    if rank not in {_SEQUENCE_RANK, _IMAGE_RANK} or layer.meta["val"].dim() != rank:
        return None
    window = [for_each_axis(bound[name], _IMAGE_AXES) for name in ("padding", "stride", "dilation")]
    is_sequence = rank == _SEQUENCE_RANK
    if is_sequence:
        parts = images, weight
        images, weight = (editor.call(aten.unsqueeze.default, p, 2, like=node) for p in parts)
        window = [[0, *bound["padding"]], [1, *bound["stride"]], [1, *bound["dilation"]]]
    fused = editor.call(
        torch.ops.mkldnn._convolution_pointwise.default,
        images, weight, bound["bias"], *window, bound["groups"], *_written(activation),
        like=node,
    )  # fmt: skip
    return editor.call(aten.squeeze.dim, fused, 2, like=node) if is_sequence else fused


def _fused_linear(
    editor: ProgramEditor, layer: Node, activation: Activation, node: Node
) -> Node | None:
    bound = bound_arguments(layer)
    weight = editor.constant(bound["weight"])
    if weight is None or weight.dim() < _MATRIX or layer.meta["val"].dim() < _MATRIX:
        return None
    if weight.dtype is not torch.float32:
        return None  # the kernel library supports halves on some processors only
    return editor.call(
        torch.ops.mkldnn._linear_pointwise.default,
        bound["input"], bound["weight"], bound["bias"], *_written(activation),
        like=node,
    )  # fmt: skip


def _written(activation: Activation) -> tuple[Any, ...]:
    return activation.name, list(activation.scalars), activation.algorithm
