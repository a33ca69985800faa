"""Plain torch code in a program: what it computes, and what becomes of its constants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from transforms.graph.editor import ProgramEditor
from transforms.graph.graph_pass import check_program
from transforms.graph.traced import constant, untraced, write

if TYPE_CHECKING:
    from torch.export import ExportedProgram

aten = torch.ops.aten


def _program() -> ExportedProgram:
    sizes = ({0: torch.export.Dim("rows", max=9)},)
    return torch.export.export(nn.Sigmoid(), (torch.rand(3, 4),), dynamic_shapes=sizes)


@untraced
def _ramp(size: int) -> torch.Tensor:
    return torch.arange(size).float()


def _ramped(given: dict[str, torch.Tensor], factor: int) -> torch.Tensor:
    """A product, a size that changes and a constant that is used twice."""
    x = given["x"]
    row, again = constant("ramp", _ramp(4)), constant("ramp", _ramp(4))
    return (x * row + again * factor) @ torch.ones(4, 2) + x.shape[0]


def test_what_is_written_computes_for_every_size() -> None:
    """Nodes know values and origin; composite operators stay whole; equal constants are one."""
    editor = ProgramEditor(_program())
    [node] = editor.calls(aten.sigmoid.default)
    made = write(editor, _ramped, {"x": node.args[0]}, 2, like=node)
    editor.replace(node, made)
    program = editor.finish()
    check_program(program, "test")
    assert editor.calls(aten.matmul.default)
    assert list(program.state_dict) == ["ramp"]
    assert made.meta["stack_trace"] == node.meta["stack_trace"]
    for rows in (2, 9):
        x = torch.rand(rows, 4)
        ramp = torch.arange(4.0)
        expected = (x * ramp + 2 * ramp) @ torch.ones(4, 2) + rows
        torch.testing.assert_close(program.module()(x), expected)
