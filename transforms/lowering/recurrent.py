"""LSTM layers written out for the CPU, where Inductor would ask for a kernel of oneDNN's format."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch._decomp import get_decompositions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["write_out_lstm"]


_MOST_STEPS = 64  # two layers of so many compile for minutes


def write_out_lstm(program: ExportedProgram) -> ExportedProgram:
    """Replace each LSTM by its products and gates, step after step, by torch's own decomposition.

    Export fixes the length, so the steps are known. Meant for decoders, which take few at a time:
    the code grows with them, so a long sequence stays what it is, a kernel that the runtime has or
    has not. GRU and plain recurrent layers Inductor writes out itself, at any length.
    """
    operator = torch.ops.aten.lstm.input
    steps = [_steps(node) for node in program.graph.nodes if node.target is operator]
    if not steps or max(steps) > _MOST_STEPS:
        return program
    with _without_onednn():  # with it, torch's decomposition is a call of that kernel
        written_out: ExportedProgram = program.run_decompositions(get_decompositions([operator]))
    return written_out


@contextmanager
def _without_onednn() -> Iterator[None]:
    """What torch.backends.mkldnn.flags does, without its warning of graphics cards."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def _steps(node: Node) -> int:
    sequence, batch_first = node.args[0], node.args[8]
    shape: tuple[int, ...] = tuple(sequence.meta["val"].shape)  # type: ignore[union-attr]
    return int(shape[1 if batch_first else 0])
