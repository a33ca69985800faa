"""Pointwise convolutions of sequences become linear layers where their result is turned at once.

A convolution writes channels before places. A transposition behind it, as before a layer norm, then
leaves every kernel that follows reading across memory, and Inductor splits such a norm into five.
A linear layer writes what the transposition would give.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from transforms.editor import ProgramEditor, fake_value
from transforms.operators import bound_arguments

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["turn_pointwise_sequences"]

aten = torch.ops.aten
_RANK = 3  # of a batch of sequences: batch, channels, places


def turn_pointwise_sequences(program: ExportedProgram) -> ExportedProgram:
    """Put a linear layer in place of each pointwise conv1d that only a transposition reads."""
    editor = ProgramEditor(program)
    for node in editor.calls(aten.conv1d.default):
        if not _is_pointwise(node) or len(node.users) != 1:
            continue
        (turned,) = node.users
        if _is_transposition(turned):
            _turn(editor, node, turned)
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


def _turn(editor: ProgramEditor, convolution: Node, turned: Node) -> None:
    given = bound_arguments(convolution)
    with editor.graph.inserting_before(convolution):
        places = editor.call(aten.transpose.int, given["input"], 1, 2, like=convolution)
        weight = editor.call(aten.squeeze.dim, given["weight"], -1, like=convolution)
        operands = (places, weight, given["bias"])
        linear = editor.call(aten.linear.default, *operands, like=convolution)
    editor.replace(turned, linear)
    editor.graph.erase_node(convolution)
