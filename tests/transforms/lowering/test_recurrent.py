"""Recurrent layers on the CPU: a decoder's step and short sequences need no kernel for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from transforms.bisect.piece import run_piece
from transforms.lowering import cpu
from transforms.lowering.recurrent import write_out_lstm
from zoo.errors import UnsupportedKernels

if TYPE_CHECKING:
    from pathlib import Path

# torch's own note on how its recurrent layers keep a second list of their weights.
pytestmark = pytest.mark.filterwarnings("ignore:The tensor attribute:UserWarning")


class _Layers(nn.Module):
    """A decoder's step with its state, as a transducer has it, and a sequence read both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 16)
        self.step = nn.LSTM(16, 8, num_layers=2, batch_first=True)
        self.both = nn.LSTM(16, 6, bidirectional=True)

    def forward(
        self, token: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor, x: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        y, state = self.step(self.table(token), (hidden, cell))
        z, (last, _) = self.both(x)
        return y, *state, z, last


def _export(module: nn.Module, *inputs: torch.Tensor) -> torch.export.ExportedProgram:
    with torch.no_grad():
        return torch.export.export(module.eval(), inputs, strict=False).run_decompositions({})


def test_lstm_is_written_out() -> None:
    """Two layers of one step with state, and four steps in both directions: eager's numbers."""
    torch.manual_seed(4)
    module = _Layers().eval()
    inputs = (torch.tensor([[3], [9]]), torch.randn(2, 2, 8), torch.randn(2, 2, 8))
    inputs = (*inputs, torch.randn(4, 2, 16))
    program = _export(module, *inputs)
    with torch.no_grad():
        expected = module(*inputs)
    results = run_piece(program, inputs)
    assert len(results) == len(expected) == 5
    for result, value in zip(results, expected, strict=True):
        torch.testing.assert_close(result, value, rtol=1e-5, atol=1e-5)
    assert torch._C._get_mkldnn_enabled()


def test_a_long_sequence_is_left_to_a_kernel(tmp_path: Path) -> None:
    """Code for a thousand steps would compile for hours: what is missing is named instead."""
    program = _export(nn.LSTM(4, 4), torch.randn(1000, 1, 4))
    assert write_out_lstm(program) is program
    with pytest.raises(UnsupportedKernels, match="mkldnn_rnn_layer"):
        cpu.lower(program, tmp_path / "model.so")
