"""Turn pointwise convolutions of sequences into linear layers if a transposition is next to them.

A convolution writes channels before positions. After a transposition, as before a layer norm, every
later kernel reads across memory, and Inductor splits such a norm into five kernels. A linear layer
writes the transposed result directly. On the CPU it is the faster product, too, and a transposed
input already has the layout that the linear layer reads.
"""

from __future__ import annotations

import torch
from torch.fx import Node

from transforms.graph.editor import ProgramEditor, fake_value
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.schemas import bound_arguments
from transforms.passes.lay_out_weights import reads_by_strides

aten = torch.ops.aten
_RANK = 3  # of a batch of sequences: batch, channels, positions


class TurnPointwiseSequences(GraphPass):
    """Replaces a pointwise conv1d that only a transposition reads with a linear layer."""

    _of_turned_inputs = False

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Replace each such convolution with a linear layer."""
        also_inputs = self._of_turned_inputs and not reads_by_strides(editor.graph)
        for node in editor.calls(aten.conv1d.default):
            if not _is_pointwise(node):
                continue
            users = list(node.users)
            if len(users) == 1 and _is_transposition(users[0]):
                editor.replace(users[0], _linear(editor, node))
                editor.graph.erase_node(node)
                journal.changed(f"{node.name} and its transposition became a linear layer")
            elif also_inputs and _is_transposition(bound_arguments(node)["input"]):
                linear = _linear(editor, node)
                turned = editor.call(aten.transpose.int, linear, 1, 2, like=node)
                editor.replace(node, turned)
                journal.changed(f"{node.name}, of a transposed input, became a linear layer")


class TurnPointwiseSequencesBothWays(TurnPointwiseSequences):
    """Replaces, besides, each pointwise conv1d that reads a transposition; its result is turned.

    A program that reads memory by strides keeps those.
    """

    name = "turn_pointwise_sequences_both_ways"
    summary = "Replaces PointwiseConv1d(Transpose(x)) with Transpose(Linear(x)) as well"
    _of_turned_inputs = True


def _is_pointwise(node: Node) -> bool:
    given = bound_arguments(node)
    sizes = fake_value(given["weight"]).shape
    batched = fake_value(given["input"]).dim() == _RANK
    window = (sizes[-1], *given["stride"], given["groups"])
    return batched and set(window) == {1} and not any(given["padding"])


def _is_transposition(node: Node) -> bool:
    if node.target is not aten.transpose.int:
        return False
    given = bound_arguments(node)
    return {given["dim0"] % _RANK, given["dim1"] % _RANK} == {1, 2}


def _linear(editor: ProgramEditor, convolution: Node) -> Node:
    """Insert a linear layer with positions before channels, in front of the convolution."""
    given = bound_arguments(convolution)
    places = editor.call(aten.transpose.int, given["input"], 1, 2, like=convolution)
    weight = editor.call(aten.squeeze.dim, given["weight"], -1, like=convolution)
    operands = (places, weight, given["bias"])
    return editor.call(aten.linear.default, *operands, like=convolution)
