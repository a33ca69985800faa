"""Pointwise convolutions of sequences are linear layers where what they read or write is turned."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from transforms.passes.turn_pointwise_sequences import (
    TurnPointwiseSequences,
    TurnPointwiseSequencesBothWays,
)


class _Module(nn.Module):
    """A convolution of sequences; places come before channels at the sides that are turned."""

    def __init__(self, convolution: nn.Conv1d, *, before: bool, after: bool) -> None:
        super().__init__()
        self.convolution, self.before, self.after = convolution, before, after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What is read is turned too, so that the program's own input is not."""
        y = self.convolution(torch.relu(x).transpose(1, 2) if self.before else x)
        return torch.sigmoid(y.transpose(1, 2) if self.after else y)


def _turned(module: nn.Module, x: torch.Tensor, *, of_turned_inputs: bool) -> list[str]:
    """The operators of the turned program, after its results were found to be eager's."""
    exported = torch.export.export(module.eval(), (x,))
    kind = TurnPointwiseSequencesBothWays if of_turned_inputs else TurnPointwiseSequences
    program, _ = kind()(exported)
    with torch.no_grad():
        torch.testing.assert_close(program.module()(x), module(x), rtol=1e-5, atol=1e-5)
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize(
    ("before", "after", "of_turned_inputs", "linear"),
    [
        (False, True, False, True),
        (True, True, False, True),
        (True, False, False, False),
        (True, False, True, True),
        (False, False, True, False),
    ],
)
def test_turned_sides_make_a_linear_layer(
    *, before: bool, after: bool, of_turned_inputs: bool, linear: bool
) -> None:
    """Behind the convolution always, in front of it with the pass for both ways."""
    shape = (2, 7, 5) if before else (2, 5, 7)
    module = _Module(nn.Conv1d(5, 4, 1), before=before, after=after)
    targets = _turned(module, torch.randn(shape), of_turned_inputs=of_turned_inputs)
    assert ("aten.linear.default" in targets) is linear
    assert ("aten.conv1d.default" in targets) is not linear


@pytest.mark.parametrize(
    "convolution",
    [nn.Conv1d(4, 4, 3, padding=1), nn.Conv1d(4, 4, 1, groups=2), nn.Conv1d(4, 4, 1, stride=2)],
)
def test_other_convolutions_stay(convolution: nn.Conv1d) -> None:
    """With a window, groups or a stride."""
    module = _Module(convolution, before=True, after=True)
    assert "aten.conv1d.default" in _turned(module, torch.randn(2, 6, 4), of_turned_inputs=True)


class _Strided(_Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Reads the convolution's memory as export saw it: channels before places."""
        return self.convolution(x.transpose(1, 2)).as_strided((2, 3), (3, 1))


def test_memory_that_is_read_by_strides_keeps_its_layout() -> None:
    """A linear layer's result is stored turned."""
    module = _Strided(nn.Conv1d(4, 4, 1), before=True, after=False)
    assert "aten.conv1d.default" in _turned(module, torch.randn(1, 6, 4), of_turned_inputs=True)
