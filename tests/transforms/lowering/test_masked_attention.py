"""Attention with a mask of truth values: hidden scores stay minus infinity, and NaN stays NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.pieces import assert_as_eager
from transforms import convert

if TYPE_CHECKING:
    from pathlib import Path


class _Attend(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Each query sees the keys up to its own."""
        if q.dim() == 3:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)


@pytest.mark.parametrize(("target", "axes"), [("cpu", 4), ("metal", 4), ("metal", 3)])
def test_a_hidden_key_that_is_nan(target: str, axes: int, tmp_path: Path) -> None:
    """Eager adds minus infinity to its score, so the query's row is NaN; it is no other's."""
    q, k, v = torch.randn(3, 1, 2, 5, 16, generator=torch.Generator().manual_seed(0))
    q, k, v = (each[0] if axes == 3 else each for each in (q, k, v))
    bundle = convert(
        _Attend().eval(), (q, k, v), target=target, out=tmp_path / "b", measure_seconds=0
    )
    k = k.clone()
    k[..., 1, 3, 2] = torch.nan
    assert_as_eager(bundle.folder, _Attend(), (q, k, v), rtol=1e-4, atol=1e-5)
