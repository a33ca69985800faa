"""Matrix product shims against eager PyTorch, over random shapes, strides, offsets and factors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

small = settings(max_examples=60, deadline=None)


@st.composite
def matrices(draw: st.DrawFn, *shape: int) -> torch.Tensor:
    """A tensor of that shape: transposed, padded, shifted, or one row repeated."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    rows, columns = shape[-2:]
    if draw(st.booleans()):
        whole = torch.randn(*shape[:-2], columns + 3, rows + 2, generator=generator)
        value = whole[..., 1 : columns + 1, 2 : rows + 2].transpose(-1, -2)
    else:
        whole = torch.randn(*shape[:-2], rows + 2, 2 * columns + 1, generator=generator)
        value = whole[..., 2:, 1 : 2 * columns + 1 : 2] if draw(st.booleans()) else whole
        value = value[..., :rows, :columns]
    if rows > 0 and draw(st.integers(0, 4)) == 0:
        value = value[..., :1, :].expand(shape)
    return value


sizes = st.integers(0, 17)


@given(st.data(), sizes, sizes, sizes)
@small
def test_mm_equals_eager(abi: Any, data: st.DataObject, m: int, k: int, n: int) -> None:
    """A product of any two matrices, empty ones too, written into any third."""
    a, b = data.draw(matrices(m, k)), data.draw(matrices(k, n))
    out = torch.empty(n, m).T if data.draw(st.booleans()) else torch.empty(m, n)
    abi.call("aoti_torch_cpu_mm_out", out=out, self=a, mat2=b)
    torch.testing.assert_close(out, a @ b, rtol=1e-4, atol=1e-4)


@given(st.data(), sizes, st.integers(1, 17), sizes)
@small
def test_addmm_equals_eager(abi: Any, data: st.DataObject, m: int, k: int, n: int) -> None:
    """Beta * self + alpha * product, whatever of the output's shape `self` is broadcast from."""
    a, b = data.draw(matrices(m, k)), data.draw(matrices(k, n))
    shape = data.draw(st.sampled_from([(n,), (1, n), (m, 1), (m, n), ()]))
    whole = torch.randn(shape)
    self_ = whole.expand(m, n) if data.draw(st.booleans()) else whole
    beta = data.draw(st.sampled_from([1.0, 0.0, 0.5]))
    alpha = data.draw(st.sampled_from([1.0, -2.0]))
    out = torch.empty(m, n)
    abi.call(
        "aoti_torch_cpu_addmm_out", out=out, self=self_, mat1=a, mat2=b, beta=beta, alpha=alpha
    )
    expected = torch.addmm(self_.expand(m, n), a, b, beta=beta, alpha=alpha)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)


def test_beta_of_nought_ignores_nan(abi: Any) -> None:
    """With beta = 0 the values of self do not matter, not even NaN."""
    out, a, b = torch.empty(2, 3), torch.randn(2, 4), torch.randn(4, 3)
    self_ = torch.full((3,), torch.nan)
    abi.call("aoti_torch_cpu_addmm_out", out=out, self=self_, mat1=a, mat2=b, beta=0.0, alpha=1.0)
    torch.testing.assert_close(out, a @ b)


@given(st.data(), st.integers(0, 4), sizes, st.integers(1, 9), sizes)
@small
def test_bmm_equals_eager(
    abi: Any, data: st.DataObject, batch: int, m: int, k: int, n: int
) -> None:
    """A batch of products, of batches of any strides."""
    a, b = data.draw(matrices(batch, m, k)), data.draw(matrices(batch, k, n))
    out = torch.empty(batch, m, n)
    abi.call("aoti_torch_cpu_bmm_out", out=out, self=a, mat2=b)
    torch.testing.assert_close(out, torch.bmm(a, b), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(3, 5, 6), (6,), (1, 1, 6), (3, 1, 1)])
def test_baddbmm_equals_eager(abi: Any, shape: tuple[int, ...]) -> None:
    """A batch of products plus a broadcast sum."""
    self_, a, b = torch.randn(shape), torch.randn(3, 5, 4), torch.randn(3, 4, 6)
    out = torch.empty(3, 5, 6)
    abi.call(
        "aoti_torch_cpu_baddbmm_out", out=out, self=self_, batch1=a, batch2=b, beta=2.0, alpha=0.5
    )
    expected = torch.baddbmm(self_, a, b, beta=2.0, alpha=0.5)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("lead", [(), (7,), (2, 3)])
@pytest.mark.parametrize("biased", [False, True])
def test_linear_with_activation_equals_eager(abi: Any, lead: tuple[int, ...], biased: bool) -> None:
    """A linear layer over any leading axes, its activation fused in."""
    x, w = torch.randn(*lead, 9), torch.randn(5, 9)
    b = torch.randn(5) if biased else None
    actual = abi.result(
        "aoti_torch_cpu__linear_pointwise", X=x, W=w, B=b, attr="gelu", scalars=[], algorithm="none"
    )
    torch.testing.assert_close(actual, F.gelu(F.linear(x, w, b)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("attr", ["add", "mul"])
def test_linear_with_residual_equals_eager(abi: Any, attr: str) -> None:
    """A linear layer, then a sum or product with a tensor of the result's shape."""
    x, w, b, other = torch.randn(2, 3, 9), torch.randn(5, 9), torch.randn(5), torch.randn(2, 3, 5)
    actual = abi.result(
        "aoti_torch_cpu__linear_pointwise_binary", X=x, other=other, W=w, B=b, attr=attr
    )
    operation = torch.add if attr == "add" else torch.mul
    torch.testing.assert_close(actual, operation(F.linear(x, w, b), other), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("out", "a", "b", "fact"),
    [
        (torch.empty(2, 3), torch.randn(2, 4), torch.randn(5, 3), "shapes do not fit"),
        (torch.empty(3, 3), torch.randn(2, 4), torch.randn(4, 3), "shapes do not fit"),
        (torch.empty(2, 3), torch.randn(2, 4), torch.randn(4, 3).double(), "dtypes differ"),
        (torch.empty(2, 3), torch.randn(2, 4, 1), torch.randn(4, 3), "must have 2 axes"),
    ],
)
def test_misfit_is_refused_by_name(
    abi: Any,
    shim_error: type[Exception],
    out: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    fact: str,
) -> None:
    """Operands that do not fit are an error that names the function and both of them."""
    with pytest.raises(shim_error, match=f"^aoti_torch_cpu_mm_out: .*{fact}"):
        abi.call("aoti_torch_cpu_mm_out", out=out, self=a, mat2=b)


def test_integers_are_refused(abi: Any, shim_error: type[Exception]) -> None:
    """The kernel library does not multiply integers, and says so."""
    a = torch.ones(2, 2, dtype=torch.int64)
    with pytest.raises(shim_error, match="does not compute with int64"):
        abi.call("aoti_torch_cpu_mm_out", out=torch.empty_like(a), self=a, mat2=a)
