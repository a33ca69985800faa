"""Join a depthwise convolution with the convolution before it that makes its images.

The first makes an image several times as deep, which only the second reads: an inverted residual
block's 1 x 1 convolution, or one of few channels, after which a mask may hide frames of speech.
As one runtime call (`runtime/cpu/convolution.cpp`), a few rows at a time stay in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from transforms.graph.editor import ProgramEditor, fake_value
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.guards import surely_equal
from transforms.graph.schemas import bound_arguments, declare, for_each_axis
from transforms.passes.compute_convolution_sizes import compute_size
from transforms.passes.cpu.fuse_activations import ACTIVATIONS, Activation, activation_of
from transforms.passes.lay_out_weights import reads_by_strides

aten = torch.ops.aten

_SCHEMA = (
    "expanded_depthwise(Tensor input, Tensor expansion, Tensor? expansion_bias,"
    " int[] expansion_stride, int[] expansion_padding, int[] expansion_dilation, Tensor? rows,"
    " str expansion_activation, float[] expansion_scalars, Tensor weight, Tensor? bias,"
    " int[] stride, int[] padding, int[] dilation, str activation, float[] scalars) -> Tensor"
)
_POINTWISE = torch.ops.mkldnn._convolution_pointwise.default
_RANK, _AXES = 4, 2  # of batched images
_FEW_NUMBERS = 32  # input numbers per number of the expanded image


@dataclass(frozen=True)
class _Convolution:
    """A convolution call with a constant weight, and the activation after it."""

    input: Node
    weight: Node
    bias: Node | None
    window: tuple[list[int], list[int], list[int]]  # stride, padding, dilation
    groups: int
    activation: Activation


@dataclass(frozen=True)
class _Expansion:
    """The source of a depthwise convolution's images, and the factors of its rows."""

    node: Node
    convolution: _Convolution
    activation: Activation
    rows: Node | None = None


def _compute(  # noqa: PLR0917
    input: Tensor, expansion: Tensor, expansion_bias: Tensor | None,  # noqa: A002
    expansion_stride: Sequence[int], expansion_padding: Sequence[int],
    expansion_dilation: Sequence[int], rows: Tensor | None, expansion_activation: str,
    expansion_scalars: Sequence[float], weight: Tensor, bias: Tensor | None,
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], activation: str,
    scalars: Sequence[float],
) -> Tensor:  # fmt: skip
    window = (expansion_stride, expansion_padding, expansion_dilation)
    made = aten.conv2d.default(input, expansion, expansion_bias, *window)
    if not made.is_meta:  # neither step changes a shape
        made = made if rows is None else made * rows
        made = Activation(expansion_activation, tuple(expansion_scalars)).of(made)
    made = aten.conv2d.default(made, weight, bias, stride, padding, dilation, weight.shape[0])
    return made if made.is_meta else Activation(activation, tuple(scalars)).of(made)


declare(_SCHEMA, _compute, memory_format=torch.channels_last)


class JoinExpandedDepthwise(GraphPass):
    """Replaces a depthwise convolution and the one that makes its images with one call.

    Both are float32 (the runtime has no other kernels), with an activation between them. A program
    that reads memory by strides is left unchanged, since the result is channels-last.
    """

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Join each pair whose intermediate images nothing else reads."""
        if reads_by_strides(editor.graph):
            return
        for node in editor.calls(_POINTWISE, aten.conv2d.default):
            outer = _convolution(editor, node)
            if outer is None or not _is_depthwise(outer):
                continue
            expansion = _expansion(editor, outer.input)
            if expansion is None:
                continue
            for asked in [n for n in expansion.node.users if n.target is aten.sym_size.int]:
                compute_size(editor, asked, expansion.node)
            joined = _joined(editor, expansion, outer, node)
            journal.changed(f"joined {expansion.node.name} and {node.name}")
            editor.replace(node, joined)
            joined.name = node.name


def _convolution(editor: ProgramEditor, node: Node) -> _Convolution | None:
    given = bound_arguments(node)
    fused = node.target is _POINTWISE
    names = ("X", "W", "B") if fused else ("input", "weight", "bias")
    images, weight, bias = (given[name] for name in names)
    if not fused and editor.constant(weight) is None:
        return None
    made = fake_value(node)
    if made.dim() != _RANK or made.dtype != torch.float32:
        return None
    activation = Activation("none")
    if fused:
        activation = Activation(given["attr"], tuple(given["scalars"]), given["algorithm"] or "")
    names = ("stride", "padding", "dilation")
    stride, padding, dilation = (list(for_each_axis(given[name], _AXES)) for name in names)
    window = (stride, padding, dilation)
    return _Convolution(images, weight, bias, window, given["groups"], activation)


def _is_depthwise(call: _Convolution) -> bool:
    weight = fake_value(call.weight)
    plain = weight.dim() == _RANK and not call.activation.algorithm
    return plain and call.groups == weight.shape[0] > 1 and weight.shape[1] == 1


def _expansion(editor: ProgramEditor, images: Node) -> _Expansion | None:
    """Return the source of `images`; None if the runtime has no kernel, or others read them."""
    if len(images.users) != 1:
        return None
    if images.target is _POINTWISE:
        made = _convolution(editor, images)
        found = None if made is None else _Expansion(images, made, made.activation)
    else:
        found = _masked_expansion(editor, images)
    return found if found is not None and _is_expansion(found) else None


def _is_expansion(expansion: _Expansion) -> bool:
    call = expansion.convolution
    if call.groups != 1 or expansion.activation.algorithm:
        return False
    sizes = list(fake_value(call.weight).shape[1:])
    stride, padding, _ = call.window
    of_pixels = [*sizes[1:], *stride] == [1] * 2 * _AXES and not any(padding)
    return of_pixels or math.prod(sizes) <= _FEW_NUMBERS


def _masked_expansion(editor: ProgramEditor, images: Node) -> _Expansion | None:
    """Return an expansion whose result is multiplied by factors of its rows, then activated."""
    if images.target not in ACTIVATIONS:
        return None
    product = images.args[0]
    if not isinstance(product, torch.fx.Node) or product.target is not aten.mul.Tensor:
        return None
    if len(product.users) != 1:
        return None
    for node, rows in (product.args, product.args[::-1]):
        if not isinstance(node, torch.fx.Node) or node.target is not aten.conv2d.default:
            continue
        made = _convolution(editor, node)
        if made is not None and _is_read_by(product, node) and _is_of_rows(rows, node, product):
            return _Expansion(node, made, activation_of(images), rows)  # type: ignore[arg-type]
    return None


def _is_read_by(product: Node, convolution: Node) -> bool:
    """Return whether all other users only ask for sizes, which can be computed."""
    asked = [user for user in convolution.users if user is not product]
    sized = all(user.target is aten.sym_size.int for user in asked)
    return sized and all(user.args[1] % _RANK != 1 for user in asked)  # type: ignore[operator]


def _is_of_rows(factors: object, convolution: Node, product: Node) -> bool:
    """Return whether each row of the images is multiplied by one number, without broadcasting."""
    if not isinstance(factors, torch.fx.Node) or fake_value(factors).dim() != _RANK:
        return False
    _, channels, _, columns = fake_value(factors).shape
    made = fake_value(product)
    same = surely_equal(made.shape, fake_value(convolution).shape)
    return same and made.dtype == torch.float32 and surely_equal((channels, columns), (1, 1))


def _joined(editor: ProgramEditor, expansion: _Expansion, outer: _Convolution, like: Node) -> Node:
    inner, rows = expansion.convolution, expansion.rows
    if rows is not None and fake_value(rows).dtype != torch.float32:
        rows = editor.call(aten._to_copy.default, rows, dtype=torch.float32, like=like)
    return editor.call(
        torch.ops.menagerie.expanded_depthwise.default,
        inner.input, inner.weight, inner.bias, *inner.window, rows,
        expansion.activation.name, list(expansion.activation.scalars),
        outer.weight, outer.bias, *outer.window,
        outer.activation.name, list(outer.activation.scalars),
        like=like,
    )  # fmt: skip
