"""Pointwise convolutions of sequences become linear layers where what they read or write is turned.

A convolution writes channels before places. A transposition behind it, as before a layer norm, then
leaves every kernel that follows reading across memory, and Inductor splits such a norm into five.
A linear layer writes what the transposition would give. On the CPU it is the faster product, too,
and what is turned in front of a convolution lies as the linear layer reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from transforms.graph.editor import ProgramEditor, fake_value
from transforms.graph.schemas import bound_arguments
from transforms.lowering.layouts import reads_by_strides

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["turn_pointwise_sequences"]

aten = torch.ops.aten
_RANK = 3  # of a batch of sequences: batch, channels, places


def turn_pointwise_sequences(
    program: ExportedProgram, *, of_turned_inputs: bool = False
) -> ExportedProgram:
    """Put a linear layer in place of each pointwise conv1d that only a transposition reads.

    Args:
        program: exported, as its target prepares it.
        of_turned_inputs: also of each that reads a transposition; its result then lies turned.
            A program that reads memory by strides keeps those.
    """
    editor = ProgramEditor(program)
    also_inputs = of_turned_inputs and not reads_by_strides(program)
    for node in editor.calls(aten.conv1d.default):
        if not _is_pointwise(node):
            continue
        users = list(node.users)
        if len(users) == 1 and _is_transposition(users[0]):
            editor.replace(users[0], _linear(editor, node))
            editor.graph.erase_node(node)
        elif also_inputs and _is_transposition(bound_arguments(node)["input"]):
            linear = _linear(editor, node)
            with editor.graph.inserting_after(linear):
                turned = editor.call(aten.transpose.int, linear, 1, 2, like=node)
            editor.replace(node, turned)
    return editor.finish()


def _is_pointwise(node: Node) -> bool:
    given = bound_arguments(node)
    sizes = fake_value(given["weight"]).shape
    batched = fake_value(given["input"]).dim() == _RANK
    window = (sizes[-1], *given["stride"], given["groups"])
    return batched and set(window) == {1} and not any(given["padding"])


def _is_transposition(node: Node) -> bool:
    """Whether a call exchanges channels and places."""
    if node.target is not aten.transpose.int:
        return False
    given = bound_arguments(node)
    return {given["dim0"] % _RANK, given["dim1"] % _RANK} == {1, 2}


def _linear(editor: ProgramEditor, convolution: Node) -> Node:
    """What the convolution computes with places before channels, in front of it."""
    given = bound_arguments(convolution)
    with editor.graph.inserting_before(convolution):
        places = editor.call(aten.transpose.int, given["input"], 1, 2, like=convolution)
        weight = editor.call(aten.squeeze.dim, given["weight"], -1, like=convolution)
        operands = (places, weight, given["bias"])
        return editor.call(aten.linear.default, *operands, like=convolution)
