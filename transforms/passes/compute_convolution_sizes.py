"""Compute the sizes of convolutions' results from the sizes of their inputs.

A mask after a convolution is as long as its result. Computed from the input, that length is known
before the convolution runs, so its kernel can apply the mask (`metal/fuse_epilogues.py`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from transforms.graph.editor import ProgramEditor, fake_value
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.schemas import bound_arguments
from transforms.graph.traced import write

aten = torch.ops.aten

_CONVOLUTIONS = (aten.conv1d.default, aten.conv2d.default)
_CHANNELS = 1  # this axis comes before those of positions


class ComputeConvolutionSizes(GraphPass):
    """Replaces a size asked of a convolution's result with one computed from its input's."""

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Replace each read of a size of a convolution's result."""
        for asked in editor.calls(aten.sym_size.int):
            convolution = asked.args[0]
            if isinstance(convolution, torch.fx.Node) and convolution.target in _CONVOLUTIONS:
                compute_size(editor, asked, convolution)
                journal.changed(f"{asked.name} is computed from the input of {convolution.name}")


def compute_size(editor: ProgramEditor, asked: Node, convolution: Node) -> None:
    """Compute `asked`, a size of a convolution's result on an axis other than channels."""
    given = bound_arguments(convolution)
    images = given["input"]
    axis = int(asked.args[1]) % fake_value(convolution).dim()  # type: ignore[arg-type]
    batched = fake_value(images).dim() == fake_value(given["weight"]).dim()
    if not batched or axis == _CHANNELS:
        return

    def computed(images: torch.Tensor) -> Any:
        """Return the number of a window's positions along the axis (torch.nn.Conv2d, "Shape")."""
        if axis < _CHANNELS:
            return images.shape[axis]
        place = axis - _CHANNELS - 1
        stride, padding, dilation = (given[n][place] for n in ("stride", "padding", "dilation"))
        reach = dilation * (fake_value(given["weight"]).shape[axis] - 1) + 1
        return (images.shape[axis] + 2 * padding - reach) // stride + 1

    editor.replace(asked, write(editor, computed, images, like=convolution))
