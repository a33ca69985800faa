"""Attention written out computes what torch's own does, whatever it is asked for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from transforms.lowering.attention import write_out_attention


class Attention(nn.Module):
    """One attention, and the reshape that models put behind it."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """(batch, heads, L, E) to (batch, L, heads * V)."""
        out = nn.functional.scaled_dot_product_attention(q, k, v, mask, **self.options)
        return out.transpose(1, 2).reshape(q.shape[0], q.shape[2], -1)


def _written_out(module: nn.Module, arguments: tuple[torch.Tensor, ...]) -> torch.Tensor:
    program = torch.export.export(module, arguments, strict=False).run_decompositions({})
    written = write_out_attention(program)
    names = [str(node.target) for node in written.graph.nodes]
    assert not any("attention" in name for name in names)
    result: torch.Tensor = written.module()(*arguments)
    return result


def _operands(heads: int = 4, key_heads: int = 4) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(3)
    return (
        torch.randn(2, heads, 5, 8),
        torch.randn(2, key_heads, 7, 8),
        torch.randn(2, key_heads, 7, 6),
    )


@pytest.mark.parametrize(
    ("options", "key_heads"),
    [({}, 4), ({"is_causal": True}, 4), ({"scale": 0.3}, 4), ({"enable_gqa": True}, 2)],
)
def test_options(options: dict[str, Any], key_heads: int) -> None:
    """Plain, causal, scaled and with shared key heads."""
    operands = _operands(key_heads=key_heads)
    module = Attention(**options)
    torch.testing.assert_close(_written_out(module, operands), module(*operands))


@pytest.mark.parametrize("boolean", [True, False])
def test_masks(boolean: bool) -> None:
    """Boolean masks and added ones; a row that is masked as a whole gives zeros, as in torch."""
    mask = torch.rand(2, 1, 5, 7) > 0.4
    mask[0, 0, 2] = False
    operands = (*_operands(), mask if boolean else torch.where(mask, 0.0, -torch.inf))
    module = Attention()
    result = _written_out(module, operands)
    torch.testing.assert_close(result, module(*operands))
    assert result[0, 2].eq(0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("masked", [True, False])
def test_half_precision_is_rounded_once(dtype: torch.dtype, masked: bool) -> None:
    """Scores and sums are of single precision: the result is the exact one, rounded to the dtype.

    Large scores tell: rounded to bfloat16, a score of 30 is off by an eighth. A mask may be of
    single precision beside operands of half.
    """
    exact = [(3 * each).to(dtype) for each in _operands()]
    if masked:
        exact.append(torch.randn(2, 1, 5, 7))
    expected = Attention()(*(each.double() for each in exact))
    result = _written_out(Attention(), tuple(exact))
    assert result.dtype is dtype
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(result.double(), expected, rtol=step, atol=step)


def test_programs_without_attention_stay_themselves() -> None:
    """Nothing to write out: the very same program."""
    program = torch.export.export(nn.ReLU(), (torch.ones(2),), strict=False)
    assert write_out_attention(program) is program


def test_dropout_is_refused() -> None:
    """An artifact draws no random numbers."""
    with pytest.raises(NotImplementedError, match="dropout"):
        _written_out(Attention(dropout_p=0.5), _operands())
