"""Aliasing: memory that may be shared is found to be shared; constants that change are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from transforms.graph.aliasing import FRESH
from transforms.graph.editor import ProgramEditor

if TYPE_CHECKING:
    from torch.fx import Node


class _Model(nn.Module):
    """A function, with a buffer that a second name views."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("state", torch.zeros(2, 3))
        self.register_buffer("row", self.state[0])
        self.register_buffer("own", torch.zeros(2, 3))

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def _editor(function: Any) -> ProgramEditor:
    program = torch.export.export(_Model(function).eval(), (torch.randn(2, 3),), strict=False)
    return ProgramEditor(program)


def _node(editor: ProgramEditor, name: str) -> Node:
    return next(n for n in editor.graph.nodes if n.name == name)


_ONE = torch.ones(1, 1, 1)
# Calls by which nothing changes, so that an operator might hand back what it was given.
_IDENTITIES: dict[str, list[tuple[Any, ...]]] = {
    "linear": [(_ONE, _ONE[0]), (_ONE[0, 0], _ONE[0])],
    "matmul": [(_ONE, _ONE), (_ONE[0, 0], _ONE[0, 0]), (_ONE[0], _ONE[0, 0])],
    "conv1d": [(_ONE, _ONE)],
    "conv2d": [(_ONE[None], _ONE[None])],
    "conv3d": [(_ONE[None, None], _ONE[None, None])],
    "batch_norm": [(_ONE, None, None, 0 * _ONE[0, 0], _ONE[0, 0], False, 0.0, 0.0, False)],
    "group_norm": [(_ONE.expand(1, 1, 1), 1, None, None, 0.0)],
    "scaled_dot_product_attention": [(_ONE[None], _ONE[None], _ONE[None])],
}


@pytest.mark.parametrize("name", sorted({name.removeprefix("aten::") for name in FRESH}))
def test_what_is_called_fresh_never_returns_what_it_was_given(name: str) -> None:
    """With weights of one and no bias, of one element and of several axes or none left."""
    if name == "layer_norm":
        x = torch.tensor([[-1.0, 1.0]])
        assert nn.functional.layer_norm(x, (2,)).data_ptr() != x.data_ptr()
        return
    for arguments in _IDENTITIES[name]:
        result = getattr(torch.ops.aten, name)(*arguments)
        assert result.untyped_storage().data_ptr() != _ONE.untyped_storage().data_ptr()


@pytest.mark.parametrize(
    ("function", "name", "shares"),
    [
        (lambda _, x: x.exp().view(6).unsqueeze(0), "unsqueeze", True),
        (lambda _, x: x.exp().split(1)[1], "getitem_1", True),
        (lambda _, x: torch.einsum("ij->ji", x.exp()), "einsum", True),
        (lambda _, x: torch.einsum("ij,ij->i", x.exp(), x), "einsum", False),
        (lambda _, x: torch.broadcast_tensors(x.exp(), torch.ones(3))[0], "getitem", True),
        (lambda _, x: nn.functional.dropout(x.exp(), training=False), "dropout", True),
        (lambda _, x: torch.ops.aten.view_copy(x.exp(), [6]), "view_copy", False),
        (lambda _, x: nn.functional.linear(x.exp(), x), "linear", False),
        (lambda _, x: nn.functional.layer_norm(x.exp(), (3,)), "layer_norm", False),
    ],
)
def test_what_shares_memory(function: Any, name: str, shares: bool) -> None:
    """Views by their schema, composite operators by what they return, copies never."""
    editor = _editor(function)
    found = [n for n in editor.graph.nodes if n.name.startswith(name.split("_", maxsplit=1)[0])]
    node = next((n for n in found if n.name == name), found[-1])
    assert editor.aliasing().share(_node(editor, "exp"), node) == shares


@pytest.mark.parametrize("written", [False, True])
def test_constants_written_before_decomposition_are_no_constants(written: bool) -> None:
    """The program's signature names no mutated buffer yet."""

    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        if written:
            m.own.view(6).add_(1)
        return x + m.own

    editor = _editor(function)
    assert (editor.constant(_node(editor, "b_own")) is None) == written


def test_subgraphs_without_writes_write_nothing() -> None:
    """What runs under no_grad is a call of a graph; it is looked into."""

    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            y = x * m.state
        return y + 1

    program = torch.export.export(_Model(function).eval(), (torch.randn(2, 3),), strict=False)
    editor = ProgramEditor(program)
    assert editor.constant(_node(editor, "b_state")) is not None


@pytest.mark.parametrize("functional", [False, True])
def test_a_written_parameter_is_no_constant(functional: bool) -> None:
    """A frozen parameter written through a view changes; the signature lists it by itself."""

    class Written(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4), requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.view(2, 2).mul_(2)
            return x + self.weight

    program = torch.export.export(Written(), (torch.zeros(4),), strict=False)
    editor = ProgramEditor(program.run_decompositions({}) if functional else program)
    assert editor.constant(_node(editor, "p_weight")) is None
