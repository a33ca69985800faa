"""A depthwise convolution and the one of 1 x 1 before it, as an inverted residual block has them.

The first makes an image several times as deep, which the second alone reads. As one call of the
runtime's (`runtime/cpu/expansion.cpp`) a few of its rows at a time stay in the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from transforms.editor import ProgramEditor, fake_value
from transforms.lowering.own_operators import declare
from transforms.operators import bound_arguments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["expanded_operator", "join_expansions"]

_SCHEMA = (
    "expanded_depthwise(Tensor input, Tensor expansion, Tensor? expansion_bias,"
    " str expansion_activation, float[] expansion_scalars, Tensor weight, Tensor? bias,"
    " int[] stride, int[] padding, int[] dilation, str activation, float[] scalars) -> Tensor"
)


def _shape(  # noqa: PLR0917
    input: Tensor,  # noqa: A002
    expansion: Tensor,
    expansion_bias: Tensor | None,
    _expansion_activation: str,
    _expansion_scalars: Sequence[float],
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    *_: object,
) -> Tensor:
    conv2d = torch.ops.aten.conv2d.default
    expanded = conv2d(input, expansion, expansion_bias)
    made = conv2d(expanded, weight, bias, stride, padding, dilation, weight.shape[0])
    return torch.empty_like(made, memory_format=torch.channels_last)


def expanded_operator() -> None:
    """Declare `menagerie::expanded_depthwise` for the process."""
    declare(_SCHEMA, _shape)


def join_expansions(program: ExportedProgram) -> ExportedProgram:
    """Have one call compute a convolution of 1 x 1 and the depthwise one that alone reads it.

    Both are fused convolutions with activations (`activations.py`), in float32: the runtime has no
    kernel for others.
    """
    expanded_operator()
    editor = ProgramEditor(program)
    for node in editor.calls(torch.ops.mkldnn._convolution_pointwise.default):
        outer = bound_arguments(node)
        expansion = outer["X"]
        if not _is_depthwise(outer) or len(expansion.users) != 1:
            continue
        if expansion.target is not node.target or not _is_expansion(bound_arguments(expansion)):
            continue
        with editor.graph.inserting_before(node):
            editor.replace(node, _joined(editor, bound_arguments(expansion), outer, node))
    return editor.finish()


def _is_depthwise(call: Mapping[str, Any]) -> bool:
    weight = fake_value(call["W"])
    return (
        weight.dim() == 4  # noqa: PLR2004
        and weight.dtype == torch.float32
        and call["groups"] == weight.shape[0] > 1
        and weight.shape[1] == 1
        and not call["algorithm"]
    )


def _is_expansion(call: Mapping[str, Any]) -> bool:
    weight = fake_value(call["W"])
    return (
        call["groups"] == 1
        and all(size == 1 for size in weight.shape[2:])
        and all(step == 1 for step in call["stride"])
        and not any(call["padding"])
        and not call["algorithm"]
    )


def _joined(
    editor: ProgramEditor, inner: Mapping[str, Any], outer: Mapping[str, Any], like: Node
) -> Node:
    return editor.call(
        torch.ops.menagerie.expanded_depthwise.default,
        inner["X"], inner["W"], inner["B"], inner["attr"], list(inner["scalars"]),
        outer["W"], outer["B"],
        *(list(outer[name]) for name in ("stride", "padding", "dilation")),
        outer["attr"], list(outer["scalars"]),
        like=like,
    )  # fmt: skip
