"""Cutting programs: inner values, other outputs and small pieces, all equal to eager's."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from transforms.bisect.pieces import extract, with_outputs
from transforms.graph.graph_pass import check_program
from transforms.graph.interpret import capture, output_nodes


class _Net(nn.Module):
    """Weights, a buffer, a tuple of results, a dynamic size and two outputs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.norm = nn.Linear(8, 8), nn.Linear(8, 6), nn.BatchNorm1d(8)
        self.register_buffer("gain", torch.rand(8))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows (batch, 8) and (batch, 6)."""
        hidden = self.norm(torch.relu(self.first(x))) * self.gain
        left, right = torch.split(hidden, 4, dim=-1)
        mixed = self.second(torch.cat([right, left], -1)).reshape(x.shape[0], -1)
        return mixed + y, hidden


def _program() -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=2, max=9)
    return torch.export.export(
        _Net().eval(),
        (torch.randn(5, 8), torch.randn(5, 6)),
        dynamic_shapes=({0: batch}, {0: batch}),
        strict=False,
    ).run_decompositions({})


@pytest.fixture(scope="module")
def program() -> torch.export.ExportedProgram:
    """The exported network."""
    return _program()


def _inputs(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, 8), torch.randn(rows, 6)


def _tensors(program: torch.export.ExportedProgram) -> list[str]:
    return [
        n.name
        for n in program.graph.nodes
        if n.op == "call_function" and isinstance(n.meta["val"], torch.Tensor)
    ]


def test_captured_outputs_are_eagers(program: torch.export.ExportedProgram) -> None:
    """Interpreting the graph gives what the module gives, at a size that is not the example's."""
    inputs = _inputs(7)
    names = [n.name for n in output_nodes(program)]
    values = capture(program, inputs, names)
    for name, expected in zip(names, _Net().eval()(*inputs), strict=True):
        torch.testing.assert_close(values[name], expected)


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_inner_nodes_as_outputs_keep_their_values(
    program: torch.export.ExportedProgram, data: st.DataObject
) -> None:
    """Any nodes can be returned, in any order; nothing that they do not need is computed."""
    names = data.draw(st.lists(st.sampled_from(_tensors(program)), min_size=1, max_size=3))
    cut = with_outputs(program, list(dict.fromkeys(names)))
    check_program(cut, "test")
    inputs = _inputs(3)
    expected = capture(program, inputs, names)
    results = cut.module()(*inputs)
    for name, result in zip(dict.fromkeys(names), results, strict=True):
        torch.testing.assert_close(result, expected[name])


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_pieces_compute_what_the_whole_does(
    program: torch.export.ExportedProgram, data: st.DataObject
) -> None:
    """A run of neighbouring nodes runs alone on captured values, its weights still weights."""
    names = _tensors(program)
    first = data.draw(st.integers(0, len(names) - 1))
    chosen = set(names[first : first + data.draw(st.integers(1, 4))])
    inputs = _inputs(4)
    piece = extract(program, chosen, inputs)
    check_program(piece.program, "test")
    returned = [n.name for n in output_nodes(piece.program)]
    expected = capture(program, inputs, returned)
    for name, result in zip(returned, piece.program.module()(*piece.inputs), strict=True):
        torch.testing.assert_close(result, expected[name])
    assert set(piece.program.state_dict) <= set(program.state_dict)


def test_cutting_leaves_the_program_alone(program: torch.export.ExportedProgram) -> None:
    """Neither graph nor example inputs of the original change."""
    before = str(program.graph)
    with_outputs(program, ["relu"])
    extract(program, {"relu"}, _inputs(2))
    assert str(program.graph) == before


def test_captured_values_are_copies() -> None:
    """A value is kept as it was at its node, though a later node writes over it."""

    class Overwrites(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            y.add_(1)
            return y

    x = torch.ones(3)
    program = torch.export.export(Overwrites(), (x,), strict=False)
    values = capture(program, [x], ["mul"])
    torch.testing.assert_close(values["mul"], torch.full((3,), 2.0))
    torch.testing.assert_close(x, torch.ones(3))
