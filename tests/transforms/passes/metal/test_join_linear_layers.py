"""Linear layers of one input are one product, and the program's numbers stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from transforms.passes.metal.join_linear_layers import JoinLinearLayers

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_LINEAR = torch.ops.aten.linear.default


def _linears(program: ExportedProgram) -> int:
    return sum(node.target is _LINEAR for node in program.graph.nodes)


class Heads(nn.Module):
    """Queries, keys and values of 2 heads, the values' layer with a bias or not."""

    def __init__(self, *, value_bias: bool = True, tied: bool = False) -> None:
        super().__init__()
        self.query = nn.Linear(8, 6)
        self.key = self.query if tied else nn.Linear(8, 6)
        self.value = nn.Linear(8, 10, bias=value_bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attention without a softmax."""
        q, k, v = (
            layer(x).view(*x.shape[:2], 2, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        return q @ k.transpose(-1, -2) @ v


class Rows(nn.Module):
    """Two layers whose weights are one row each, so that their results lack an axis."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(8))
        self.second = nn.Parameter(torch.randn(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A number a place."""
        linear = nn.functional.linear
        return linear(x, self.first) - linear(x, self.second)


class Overwriting(nn.Module):
    """The input of two layers changes between them."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(4, 4)
        self.after = nn.Linear(4, 4)
        self.register_buffer("kept", torch.zeros(2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A sum over what was kept and what is."""
        before = self.before(self.kept)
        self.kept.add_(x)
        return before + self.after(self.kept)


def _joined(module: nn.Module) -> ExportedProgram:
    """The joined program of (2, n, 8), once its results were found to be eager's at two sizes."""
    sizes = {"x": {1: torch.export.Dim("places", min=2, max=9)}}
    exported = torch.export.export(module.eval(), (torch.randn(2, 5, 8),), dynamic_shapes=sizes)
    program, _ = JoinLinearLayers()(exported)
    for places in (2, 7):
        x = torch.randn(2, places, 8)
        torch.testing.assert_close(program.module()(x), module(x))
    return program


def test_layers_of_one_input_are_joined() -> None:
    """Queries, keys and values are one product, whose weight replaces theirs."""
    program = _joined(Heads())
    assert _linears(program) == 1
    assert sorted(tuple(w.shape) for w in program.state_dict.values()) == [(22,), (22, 8)]


def test_layers_without_bias_are_joined_apart() -> None:
    """A layer without a bias does not get one."""
    assert _linears(_joined(Heads(value_bias=False))) == 2


class Neighbours(nn.Module):
    """Layers of one input with nothing between them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, width) for width in (6, 3, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, places, 8) to (N, places, 10)."""
        first, second, third = (layer(x) for layer in self.layers)
        return torch.cat((second, first, third), -1)


def test_neighbours_are_joined() -> None:
    """Layers called one right after the other."""
    assert _linears(_joined(Neighbours())) == 1


def test_shared_weight_is_left() -> None:
    """A weight that two layers read stays whole, and is stored once."""
    assert _linears(_joined(Heads(tied=True))) == 3


def test_layers_of_one_row_are_left() -> None:
    """Weights without an axis of results are not stacked."""
    assert _linears(_joined(Rows())) == 2


def test_layers_around_a_write_are_left() -> None:
    """Layers are not joined over something that changes what the second reads."""
    exported = torch.export.export(Overwriting().eval(), (torch.randn(2, 4),))
    assert _linears(JoinLinearLayers()(exported)[0]) == 2
