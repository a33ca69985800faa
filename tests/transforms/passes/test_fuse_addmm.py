"""FuseAddmm: product and sum in one call wherever one call means the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from transforms.passes.fuse_addmm import FuseAddmm

aten = torch.ops.aten


class _Apply(nn.Module):
    """A function of tensors."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def _export(module: nn.Module, *inputs: torch.Tensor, stage: str = "functional") -> Any:
    program = torch.export.export(module.eval(), inputs, strict=False)
    if stage == "training":
        return program
    return program.run_decompositions({} if stage == "functional" else None)


def _count(program: Any, *targets: Any) -> int:
    return sum(n.target in targets for n in program.graph.nodes)


_FACTORS = st.sampled_from([1, 2, 0.5, -1, -2.5])


@settings(max_examples=25, deadline=None)
@given(
    bias=st.sampled_from([(), (1,), (3,), (1, 3), (3, 1), (1, 1), (3, 3)]),
    alpha=_FACTORS,
    product_first=st.booleans(),
    form=st.sampled_from(["mm", "matmul", "linear", "linear of t"]),
    stage=st.sampled_from(["training", "functional", "core"]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_matrix_products_fuse_with_every_bias(
    bias: tuple[int, ...], alpha: float, product_first: bool, form: str, stage: str, dtype: Any
) -> None:
    """Square matrices, so that nothing but the operands' places tells them apart."""
    torch.manual_seed(0)
    product = {
        "mm": torch.mm,
        "matmul": torch.matmul,
        "linear": nn.functional.linear,
        "linear of t": lambda x, y: nn.functional.linear(x, y.t()),
    }[form]

    def function(b: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        p = product(x, y)
        return torch.add(p, b, alpha=alpha) if product_first else torch.add(b, p, alpha=alpha)

    inputs = tuple(torch.randn(s).to(dtype) for s in (bias, (3, 3), (3, 3)))
    module = _Apply(function)
    program = _export(module, *inputs, stage=stage)
    result, record = FuseAddmm()(program)
    assert len(record.changes) == 1
    assert _count(result, aten.add.Tensor, aten.mm.default, aten.matmul.default) == 0
    got, expected = result.module()(*inputs), module(*inputs)
    assert got.dtype is expected.dtype
    close = {"rtol": 2e-2, "atol": 6e-2} if dtype is torch.bfloat16 else {}
    torch.testing.assert_close(got, expected, **close)


@pytest.mark.parametrize("form", ["linear", "matmul"])
@pytest.mark.parametrize("leading", [(), (2,), (2, 3), (1, 1, 2)])
def test_bias_of_features_joins_linear_at_any_rank(leading: tuple[int, ...], form: str) -> None:
    """linear(x, w) + b, and matmul(x, t(w)) + b, are linear(x, w, b)."""

    def function(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return b + (nn.functional.linear(x, w) if form == "linear" else torch.matmul(x, w.t()))

    inputs = (torch.randn(*leading, 4), torch.randn(5, 4), torch.randn(5))
    module = _Apply(function)
    result, _ = FuseAddmm()(_export(module, *inputs))
    assert _count(result, aten.add.Tensor) == 0
    assert _count(result, aten.permute.default, aten.t.default) <= (1 if len(leading) == 1 else 0)
    torch.testing.assert_close(result.module()(*inputs), module(*inputs))


def _twice(b: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> Any:
    product = torch.mm(x, y)
    return product + b, product


def _written(b: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = x * 1
    product = torch.mm(z, y)
    z.add_(1)
    return product + b + z


def _written_product(b: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.mm(x, y).relu_() + b


@pytest.mark.parametrize(
    ("function", "bias", "reason"),
    [
        (_twice, torch.zeros(3), "other users"),
        (_written, torch.zeros(3), "written before the sum"),
        (lambda b, x, y: torch.mm(x, y) + b, torch.zeros(3).double(), "float64"),
        (lambda b, x, y: torch.mm(x, y) + b, torch.zeros(3).int(), "int32"),
        (lambda b, x, y: torch.mm(x, y) + b, torch.zeros(2, 3, 3), "broadcasts"),
        (lambda b, x, y: torch.add(torch.mm(x, y), b, alpha=0), torch.zeros(3), "zero"),
        (lambda b, x, y: torch.add(b, torch.mm(x, y), alpha=0), torch.zeros(3), "zero"),
        (lambda b, x, y: nn.functional.linear(x[None], y) + b, torch.zeros(3, 1), "a feature"),
        (lambda b, x, y: torch.add(b, nn.functional.linear(x[None], y), alpha=2),
         torch.zeros(3), "no factor"),
    ],
)  # fmt: skip
def test_refuses_with_a_reason(function: Any, bias: torch.Tensor, reason: str) -> None:
    """Where one call would not mean the same the two stay."""
    program = _export(
        _Apply(function), bias, torch.randn(3, 3), torch.randn(3, 3), stage="training"
    )
    result, record = FuseAddmm()(program)
    assert result is program
    assert reason in record.refusals[0].reason


@pytest.mark.parametrize(
    "function",
    [
        _written_product,
        lambda b, x, y: nn.functional.linear(x, y, b) + b,
        lambda _, x, y: torch.mm(x, y) + 2,
        lambda b, x, y: torch.bmm(x[None], y[None]) + b,
        lambda b, x, _: torch.mv(x, b) + b,
    ],
)
def test_other_sums_are_left_alone(function: Any) -> None:
    """A biased layer, a number, a batched product and one written in place are no candidates."""
    program = _export(
        _Apply(function), torch.randn(3), torch.randn(3, 3), torch.randn(3, 3), stage="training"
    )
    result, _ = FuseAddmm()(program)
    assert result is program


def test_product_of_two_products() -> None:
    """Of two products in a sum one takes the other for its bias."""
    module = _Apply(lambda x, y: torch.mm(x, y) + torch.mm(y, x))
    inputs = (torch.randn(3, 3), torch.randn(3, 3))
    result, record = FuseAddmm()(_export(module, *inputs))
    assert len(record.changes) == 1
    torch.testing.assert_close(result.module()(*inputs), module(*inputs))


def test_dynamic_rows() -> None:
    """A residual of the same symbolic rows is fused without pinning them."""
    module = _Apply(lambda x, w: torch.mm(x, w) + x)
    batch = torch.export.Dim("batch", min=2, max=9)
    program = torch.export.export(
        module,
        (torch.randn(4, 3), torch.randn(3, 3)),
        dynamic_shapes=(({0: batch}, None),),
        strict=False,
    ).run_decompositions({})
    result, _ = FuseAddmm()(program)
    assert _count(result, aten.addmm.default) == 1
    inputs = (torch.randn(7, 3), torch.randn(3, 3))
    torch.testing.assert_close(result.module()(*inputs), module(*inputs))


def test_quantised_product_is_left_whole() -> None:
    """A product of dequantised operands stays as a backend knows it."""
    import torch.ao.quantization.fx._decomposed

    quantised = torch.ops.quantized_decomposed
    scale = (0.05, 0, -128, 127, torch.int8)

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x = quantised.dequantize_per_tensor(quantised.quantize_per_tensor(x, *scale), *scale)
        return nn.functional.linear(x, w) + w[0]

    program = _export(_Apply(function), torch.randn(2, 3), torch.randn(3, 3))
    result, record = FuseAddmm()(program)
    assert result is program
    assert "quantised" in record.refusals[0].reason
