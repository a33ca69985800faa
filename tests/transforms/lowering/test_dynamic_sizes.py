"""Sizes that are dynamic stay so: questions do not fix them, and what did is refused."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from tests.pieces import Apply, assert_as_eager
from transforms import convert
from transforms.graph.guards import dynamic_sizes_kept, surely_equal
from transforms.passes.metal.fuse_epilogues import FuseEpilogues
from zoo.errors import LoweringError

if TYPE_CHECKING:
    from pathlib import Path


class _Positions(nn.Module):
    """A layer over all patches of a batch, and what is added to each."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """(batch, 3, 8, 16), as x, of it and a table (8, 16) that every patch has."""
        return table + self.layer(x)


def _program() -> ExportedProgram:
    batch = Dim("batch", min=1, max=4)
    inputs = torch.randn(2, 3, 8, 16), torch.randn(8, 16)
    return torch.export.export(_Positions().eval(), inputs, dynamic_shapes=({0: batch}, None))


def _batch(program: ExportedProgram) -> torch.SymInt:
    [x] = [n for n in program.graph.find_nodes(op="placeholder") if n.name == "x"]
    return x.meta["val"].shape[0]


def test_asking_for_equality_fixes_nothing() -> None:
    """Equal are sizes that are so for every batch."""
    batch = _batch(_program())
    assert surely_equal((batch, 3), (batch, 3))
    assert surely_equal((2 * batch,), (batch + batch,))
    assert not surely_equal((batch, 3), (2, 3))
    assert not surely_equal((batch, 3), (batch,))
    assert not str(batch.node.expr).isdigit()


def test_a_size_that_lowering_fixes_is_refused() -> None:
    """`==` fixes a size to what it is in the example."""
    program = _program()
    batch = _batch(program)
    with (
        pytest.raises(LoweringError, match="axis 0 of x is dynamic, and lowering took it for 2"),
        dynamic_sizes_kept("program main", program),
    ):
        assert batch == 2


def test_sizes_stay_dynamic_through_fusion() -> None:
    """A layer whose result is added to a table keeps its batch."""
    program = _program()
    with dynamic_sizes_kept("program main", program):
        fused, _ = FuseEpilogues()(program)
    assert not str(_batch(fused).node.expr).isdigit()
    x, table = torch.randn(4, 3, 8, 16), torch.randn(8, 16)
    with torch.no_grad():
        torch.testing.assert_close(fused.module()(x, table), program.module()(x, table))


def test_a_remainder_of_a_negative_size_stays_dynamic(tmp_path: Path) -> None:
    """Torch does not see that 4 divides `n + -n % 4`, as people fill up the last group of four."""
    pad = nn.functional.pad
    groups = Apply(lambda x: pad(x, (0, -x.shape[1] % 4)).view(x.shape[0], -1, 4).sum(-1))
    sizes, out = {"x": {1: Dim("n", min=5, max=64)}}, tmp_path / "out"
    convert(groups, (torch.randn(2, 10),), dynamic_shapes=sizes, out=out, measure_seconds=0)
    calls = ((torch.randn(2, size),) for size in (5, 6, 7, 8, 63, 64))
    assert_as_eager(out, groups, *calls, rtol=1.3e-6, atol=1e-5)


@pytest.mark.parametrize("target", ["cpu", pytest.param("metal", marks=pytest.mark.sweep)])
def test_a_signal_is_cut_at_a_fraction_of_its_length(target: str, tmp_path: Path) -> None:
    """Where ranges do not tell which of two sizes is smaller, the host compares them."""
    start = Apply(lambda x: x[:, : math.floor(x.shape[1] * 0.29)] * 2)
    sizes, out = {"x": {1: Dim("n", min=20, max=3000)}}, tmp_path / "out"
    given = (torch.randn(2, 50),)
    convert(start, given, target=target, dynamic_shapes=sizes, out=out, measure_seconds=0)
    calls = ((torch.randn(2, size),) for size in (20, 57, 100, 101, 1000, 2999, 3000))
    assert_as_eager(out, start, *calls, rtol=1.3e-6, atol=1e-5)
