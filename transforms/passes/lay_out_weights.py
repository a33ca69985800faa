"""The layout of weights during code generation, and the views that must not depend on it."""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

from transforms.graph.editor import ProgramEditor
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.layouts import plain, reads_layout
from zoo.errors import PassError

aten = torch.ops.aten

_CONVOLUTIONS = (aten.conv2d.default, aten.convolution.default, aten.conv_transpose2d.input)
_IMAGE_RANK = 4  # weights of two-dimensional convolutions: out, in, height, width
_VIEWS = (aten.view.default, aten._unsafe_view.default)


class LayOutWeights(GraphPass):
    """Replaces weights of another layout with row-major ones.

    The artifact stores them so, and generated kernels index the stored memory. Views of one buffer
    are separated: a library requests as many bytes as a weight's memory has.
    """

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Copy each weight that is not contiguous, or is part of a larger memory."""
        for node in list(editor.graph.nodes):
            value = editor.constant(node)
            if value is not None and not _is_plain(value):
                editor.set_constant(node, plain(value))
                journal.changed(f"laid {editor.constant_name(node)} out row-major")

    def ensures(self, editor: ProgramEditor) -> None:
        """Raise PassError if a weight has other strides or lies in more memory than it needs."""
        for node in editor.graph.nodes:
            value = editor.constant(node)
            if value is not None and not _is_plain(value):
                where = f"strides {value.stride()} in {value.untyped_storage().nbytes()} bytes"
                fact = f"left {editor.constant_name(node)} with {where}"
                raise PassError(f"pass {self.name}", fact, "This is a fault of the pass")


class ClaimChannelsLast(GraphPass):
    """Replaces the weights of convolutions with channels-last ones, all others with row-major ones.

    Inductor would reorder plain weights at every call. The runtime's convolution reads any strides
    and packs the weight once, so the artifact keeps the plain weights. Only weights that nothing
    but convolutions use qualify: generated loops would index by the claimed strides.

    Then a convolution's result is channels-last too, where export saw a row-major one. A view of it
    may become a copy; a program that reads memory by strides gets no claims at all.
    """

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Lay out each weight for its readers."""
        LayOutWeights().rewrite(editor, journal)
        if reads_by_strides(editor.graph):
            return
        claimed = 0
        for node in list(editor.graph.nodes):
            value = editor.constant(node)
            if value is None or value.dim() != _IMAGE_RANK:
                continue
            if _only_convolution_weight(node):
                editor.set_constant(node, _channels_last(value))
                claimed += 1
        let_views_copy(editor)
        if claimed:
            journal.changed(f"claimed {claimed} weights of convolutions to be channels-last")


def _is_plain(weight: torch.Tensor) -> bool:
    return weight.is_contiguous() and weight.untyped_storage().nbytes() == weight.nbytes


def reads_by_strides(graph: Graph) -> bool:
    """Return whether a node reads memory by the strides that export saw, which must then stay."""
    return any(reads_layout(node) or node.target is aten.view.dtype for node in graph.nodes)


def let_views_copy(editor: ProgramEditor) -> None:
    """Turn views into reshapes, which copy where the actual strides allow no view.

    Export proved each view possible for the strides that it saw.
    """
    for node in editor.calls(*_VIEWS):
        node.target = aten.reshape.default


def _channels_last(weight: torch.Tensor) -> torch.Tensor:
    """Lay out `weight` channels-last, with exact strides even where an axis has size 1."""
    out, channels, height, width = weight.shape
    strides = (height * width * channels, 1, width * channels, channels)
    return torch.empty_strided((out, channels, height, width), strides, dtype=weight.dtype).copy_(
        weight
    )


def _only_convolution_weight(node: Node) -> bool:
    return bool(node.users) and all(
        user.target in _CONVOLUTIONS
        and user.args[1] is node
        and user.all_input_nodes.count(node) == 1
        for user in node.users
    )
