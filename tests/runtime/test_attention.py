"""Scaled dot-product attention against eager PyTorch's own kernel for the CPU."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

SHIM = "aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu"
eager = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


@st.composite
def tensors(draw: st.DrawFn, *shape: int) -> torch.Tensor:
    """A tensor [batch, heads, length, width] in one of the layouts that models use."""
    b, h, s, d = shape
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    layout = draw(st.sampled_from(["bhsd", "bshd", "packed"]))
    if layout == "bhsd":
        return torch.randn(b, h, s, d, generator=generator)
    if layout == "bshd":
        return torch.randn(b, s, h, d, generator=generator).transpose(1, 2)
    return torch.randn(b, s, 3, h, d, generator=generator)[:, :, 1].transpose(1, 2)


@given(
    st.data(),
    st.integers(1, 2),
    st.integers(1, 3),
    st.integers(1, 150),
    st.integers(1, 700),
    st.sampled_from([1, 8, 44]),
)
@settings(max_examples=40, deadline=None)
def test_attention_equals_eager(
    abi: Any, data: st.DataObject, batch: int, heads: int, queries: int, keys: int, width: int
) -> None:
    """Values and log-sum-exp are eager's, across block borders, layouts, masks and scales."""
    q = data.draw(tensors(batch, heads, queries, width))
    k, v = (data.draw(tensors(batch, heads, keys, width)) for _ in range(2))
    causal = data.draw(st.booleans())
    mask = None
    if not causal and data.draw(st.booleans()):
        shape = data.draw(
            st.sampled_from([(batch, heads, queries, keys), (batch, 1, 1, keys), (queries, keys)])
        )
        mask = torch.randn(shape)
        mask[..., 0] = 0.0
        mask[..., keys // 2 + 1 :] = -torch.inf
    scale = data.draw(st.sampled_from([None, 0.3]))
    arguments = {"query": q, "key": k, "value": v, "is_causal": causal, "scale": scale}
    expected, log_sum = eager(q, k, v, 0.0, causal, attn_mask=mask, scale=scale)
    handles = abi.call(SHIM, **arguments, dropout_p=0.0, attn_mask=mask)
    torch.testing.assert_close(abi.value(handles[0]), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(abi.value(handles[1]), log_sum, rtol=1e-4, atol=1e-5)
    assert abi.geometry(handles[0])[1] == expected.stride()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other machines have one kind of kernel")
def test_attention_equals_eager_with_shorter_vectors() -> None:
    """The property above, in a process whose kernels are those of a processor without AVX-512."""
    chosen = f"{__file__}::test_attention_equals_eager"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", chosen],
        env=os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


@pytest.mark.parametrize("whole", [True, False], ids=["a whole query", "one key"])
@pytest.mark.parametrize("keys", [5, 700])
def test_nan_does_not_vanish(abi: Any, keys: int, *, whole: bool) -> None:
    """By softmax's formula; eager's kernel for the CPU loses a query's before fewer than 16 keys."""
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 2, 40, 8), torch.randn(1, 2, keys, 8), torch.randn(1, 2, keys, 8)
    if whole:
        q[0, 0, 3] = torch.nan
    else:
        k[0, 0, 3, 2] = torch.nan
    scores = q @ k.mT * 8**-0.5
    found, log_sum = abi.call(
        SHIM, query=q, key=k, value=v, dropout_p=0.0, is_causal=False, attn_mask=None, scale=None
    )
    torch.testing.assert_close(abi.value(found), scores.softmax(-1) @ v, equal_nan=True)
    torch.testing.assert_close(abi.value(log_sum), scores.logsumexp(-1), equal_nan=True)


def test_boolean_mask_keeps_what_is_true(abi: Any) -> None:
    """True takes part, false does not."""
    q, k, v = (torch.randn(1, 2, 5, 8) for _ in range(3))
    keep = torch.tensor([True, False, True, True, False]).expand(1, 1, 5, 5)
    added = torch.zeros(1, 1, 5, 5).masked_fill(~keep, -torch.inf)
    expected, _ = eager(q, k, v, 0.0, False, attn_mask=added)
    actual = abi.result(
        SHIM, query=q, key=k, value=v, dropout_p=0.0, is_causal=False, attn_mask=keep, scale=None
    )
    torch.testing.assert_close(actual, expected)


def test_row_without_keys_gives_what_eager_gives(abi: Any) -> None:
    """A query all of whose keys are masked has the result that eager gives it."""
    q, k, v = (torch.randn(1, 1, 3, 8) for _ in range(3))
    mask = torch.zeros(1, 1, 3, 3)
    mask[0, 0, 1] = -torch.inf
    expected, _ = eager(q, k, v, 0.0, False, attn_mask=mask)
    actual = abi.result(
        SHIM, query=q, key=k, value=v, dropout_p=0.0, is_causal=False, attn_mask=mask, scale=None
    )
    torch.testing.assert_close(actual, expected, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed(abi: Any, dtype: torch.dtype) -> None:
    """Half precision is computed in single and rounded once at the end."""
    q, k, v = (torch.randn(1, 2, 9, 16).to(dtype) for _ in range(3))
    actual = abi.result(
        SHIM, query=q, key=k, value=v, dropout_p=0.0, is_causal=False, attn_mask=None, scale=None
    )
    expected, _ = eager(q.float(), k.float(), v.float())
    assert actual.dtype is dtype
    torch.testing.assert_close(actual.float(), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"key": torch.randn(1, 2, 5, 7)}, "shapes do not fit"),
        ({"value": torch.randn(1, 3, 5, 8)}, "shapes do not fit"),
        ({"dropout_p": 0.5}, "dropout 0.5 is for training"),
        ({"attn_mask": torch.zeros(1, 1, 4, 5)}, "axis 2 of size 5 cannot take"),
        ({"value": torch.randn(1, 2, 5, 8).double()}, "differ in dtype"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    abi: Any, shim_error: type[Exception], change: dict[str, Any], fact: str
) -> None:
    """Operands that do not fit are an error that names the function and the fact."""
    x = torch.randn(1, 2, 5, 8)
    case = {"query": x, "key": x, "value": x, "dropout_p": 0.0, "is_causal": False}
    case |= {"attn_mask": None, "scale": None}
    with pytest.raises(shim_error, match=f"^{SHIM}: .*{fact}"):
        abi.call(SHIM, **(case | change))
