"""MergeCommonSubexpressions: equal calls are made once, calls that only look equal are not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.pieces import Apply
from transforms.passes.merge_common_subexpressions import MergeCommonSubexpressions

aten = torch.ops.aten


def _export(function: Any, x: torch.Tensor, stage: str = "training") -> Any:
    program = torch.export.export(Apply(function), (x,), strict=False)
    if stage == "training":
        return program
    return program.run_decompositions({} if stage == "functional" else None)


def _merged(program: Any) -> int:
    result, record = MergeCommonSubexpressions()(program)
    assert record.modified == bool(record.changes)
    assert record.nodes_before - record.nodes_after == len(record.changes)
    assert record.modified or result is program
    return len(record.changes)


@pytest.mark.parametrize("stage", ["training", "functional", "core"])
@pytest.mark.parametrize(
    ("function", "merged"),
    [
        (lambda x: x.exp() + x.exp(), 1),
        (lambda x: torch.sin(x.exp() * 2) + torch.sin(x.exp() * 2), 3),
        (lambda x: x.t().exp() @ x.t().exp().t(), 2),
        (lambda x: x.chunk(2)[0] * x.chunk(2)[0], 2),
        (lambda x: nn.functional.gelu(x, approximate="tanh")
         + nn.functional.gelu(x, approximate="tanh"), 1),
        (lambda x: torch.cat([x, x.neg()]) + torch.cat([x, x.neg()]), 2),
    ],
)  # fmt: skip
def test_equal_calls_are_made_once(stage: str, function: Any, merged: int) -> None:
    """Whole repeated chains go, operand by operand."""
    x = torch.randn(4, 4)
    program = _export(function, x, stage)
    result, record = MergeCommonSubexpressions()(program)
    assert len(record.changes) >= merged
    torch.testing.assert_close(result.module()(x), function(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: nn.functional.gelu(x) + nn.functional.gelu(x, approximate="tanh"),
        lambda x: torch.add(x, x, alpha=2) + torch.add(x, x, alpha=3),
        lambda x: torch.sum(x, 0) + torch.sum(x, 1),
        lambda x: torch.full((4,), 1) / torch.full((4,), 1.0) + x,
        lambda x: torch.full((4,), True) | torch.full((4,), 1).bool() | x.bool(),
        lambda x: x.to(torch.float64) + x.to(torch.float16),
        lambda x: torch.rand_like(x) - torch.rand_like(x) + x,
        lambda x: nn.functional.dropout(x) + nn.functional.dropout(x),
        lambda x: torch.sub(x, x.t()) + torch.sub(x.t(), x),
    ],
)
def test_calls_that_differ_are_kept(function: Any) -> None:
    """Other keywords, other types of numbers, other order and every random draw count."""
    program = _export(function, torch.randn(4, 4))
    kinds = ("gelu", "add", "sum", "full", "to", "rand_like", "dropout", "sub")

    def heavy(p: Any) -> list[str]:
        names = [str(n.target).split(".") for n in p.graph.nodes]
        return [n[1] for n in names if len(n) > 1 and n[1] in kinds]

    result, _ = MergeCommonSubexpressions()(program)
    assert heavy(result) == heavy(program)


def _write_between(x: torch.Tensor) -> torch.Tensor:
    y = x * 3
    first = y.exp()
    y.t()[0].add_(1)
    return first + y.exp()


def _write_result(x: torch.Tensor) -> torch.Tensor:
    first, second = x * 2, x * 2
    first.add_(1)
    return first + second


def _write_later_result(x: torch.Tensor) -> torch.Tensor:
    first, second = x * 2, x * 2
    second.view(-1).add_(1)
    return first + second


@pytest.mark.parametrize(
    ("function", "reason"),
    [(lambda x: (x * 2, x * 2), "returned"), (lambda x: ((x * 2).t(), (x * 2)[0]), "returned")],
)
def test_refuses_with_a_reason(function: Any, reason: str) -> None:
    """Two results that must stay apart stay apart."""
    x = torch.randn(4, 4)
    program = _export(function, x)
    result, record = MergeCommonSubexpressions()(program)
    assert any(reason in r.reason for r in record.refusals)
    torch.testing.assert_close(result.module()(x), function(x))
    assert result is program


@pytest.mark.parametrize(
    ("function", "merged"), [(_write_between, 0), (_write_result, 1), (_write_later_result, 1)]
)
def test_calls_are_merged_by_the_values_that_they_read(function: Any, merged: int) -> None:
    """Not with one before a write to their operand; a write to a result makes a new value."""
    x = torch.randn(4, 4)
    program = _export(function, x)
    result, record = MergeCommonSubexpressions()(program)
    assert sum("mul" in change or "exp" in change for change in record.changes) == merged
    torch.testing.assert_close(result.module()(x), function(x))


def test_a_write_before_both_is_no_bar() -> None:
    """Equal calls on memory that was written before both are merged."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = (x * 3).relu_()
        return y.exp() + y.exp()

    x = torch.randn(4, 4)
    program = _export(function, x)
    assert _merged(program) == 1


def test_dynamic_sizes_are_merged_by_symbol() -> None:
    """Reads of one symbolic size are one, and arithmetic on it too."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0] * 2, 2) + torch.ones(x.shape[0] * 2, 1)

    batch = torch.export.Dim("batch", min=2, max=9)
    program = torch.export.export(
        Apply(function), (torch.randn(4, 4),), dynamic_shapes=(({0: batch}),), strict=False
    ).run_decompositions({})
    result, _ = MergeCommonSubexpressions()(program)
    x = torch.randn(7, 4)
    torch.testing.assert_close(result.module()(x), function(x))


def test_sizes_that_depend_on_data_are_kept_apart() -> None:
    """Each nonzero names its own size; their users rely on that name."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.nonzero(x).sum() + torch.nonzero(x).sum()

    program = _export(function, torch.randn(4, 4))
    result, _ = MergeCommonSubexpressions()(program)
    assert sum(n.target is aten.nonzero.default for n in result.graph.nodes) == 2


def test_conversions_to_integers_are_kept_at_each_use() -> None:
    """Backends fold a dequantise into each consumer: it must have its own."""
    import torch.ao.quantization.fx._decomposed

    quantised = torch.ops.quantized_decomposed
    scale = (0.1, 0, -128, 127, torch.int8)

    def function(x: torch.Tensor) -> torch.Tensor:
        q = quantised.quantize_per_tensor(x, *scale)
        return quantised.dequantize_per_tensor(q, *scale) + quantised.dequantize_per_tensor(
            q, *scale
        )

    program = _export(function, torch.randn(4, 4))
    result, record = MergeCommonSubexpressions()(program)
    assert result is program
    assert "quantised" in record.refusals[0].reason
