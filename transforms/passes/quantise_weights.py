"""Rounds the weights of products to integers of eight or four bits, which the bundle keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from transforms.base import GraphPass, Journal
from transforms.passes.layout_operators import is_layout
from transforms.quantised import WEIGHT_ONLY, quantised
from zoo.errors import UsageError
from zoo.precision import Precision

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.fx import Node

    from transforms.editor import ProgramEditor

__all__ = ["QuantiseWeights", "may_quantise"]

aten = torch.ops.aten

_FEWEST_COLUMNS = 32  # below it a row's scale weighs, and a depthwise kernel has nine numbers

_PRODUCTS = frozenset({
    aten.linear.default, aten.addmm.default, aten.mm.default, aten.bmm.default,
    aten.baddbmm.default, aten.matmul.default, aten.convolution.default,
    aten.conv1d.default, aten.conv2d.default, aten.conv3d.default,
    aten.conv1d.padding, aten.conv2d.padding, aten.embedding.default,
})  # fmt: skip


def may_quantise(value: torch.Tensor) -> bool:
    """Whether a weight is long enough: float32, of at least 32 numbers a row."""
    rows = value.shape[0] if value.dim() > 1 else 0
    return value.dtype is torch.float32 and rows > 0 and value.numel() // rows >= _FEWEST_COLUMNS


class QuantiseWeights(GraphPass):
    """Replaces the weights of products and tables with integers times a scale, in float32.

    The graph stays one of float32, as `narrow_weights` leaves it: the bundle keeps the integers and
    scales, the runtime multiplies them once when it loads. So the file shrinks to 0.26 or 0.15 of
    float32's, and a run takes what it takes in float32. `transforms.quantised` says how is rounded.

    Rounded are parameters that linear layers, products, convolutions and embeddings read, with at
    least 32 numbers to a row of their first axis. Biases, gains, depthwise kernels, and buffers
    (bases of transforms, tables of positions, statistics) stay as they are.

    Args:
        precision: `int8-weight-only` or `int4-weight-only`.

    Raises:
        UsageError: another precision is asked for.
    """

    name = "quantise_weights"
    summary = "Replaces weights of products with integers of eight or four bits times a scale"

    def __init__(self, precision: str = Precision.INT8_WEIGHT_ONLY) -> None:
        if precision not in WEIGHT_ONLY:
            fact = f"cannot keep weights in {precision!r}"
            raise UsageError(f"pass {self.name}", fact, f"Known: {', '.join(WEIGHT_ONLY)}")
        self._precision = Precision(precision)

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Round every weight that may be."""
        rounded = 0
        for node in editor.graph.nodes:
            value = editor.constant(node)
            if value is None or not may_quantise(value) or not editor.is_parameter(node):
                continue
            if not any(user.target in _PRODUCTS for user in _readers(node)):
                continue
            found = quantised(value, WEIGHT_ONLY[self._precision])
            if found is None:
                journal.refused(node, "has NaN or infinite numbers")
                continue
            editor.set_constant(node, found.wide())
            rounded += 1
        if rounded:
            kept = f"rounded {rounded} weights to {self._precision}, to compute in float32"
            journal.changed(kept)


def _readers(node: Node) -> Iterator[Node]:
    """The users of a constant, behind operators that only rearrange it too."""
    for user in node.users:
        yield from _readers(user) if is_layout(user) else (user,)
