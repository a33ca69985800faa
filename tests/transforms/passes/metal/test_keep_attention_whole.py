"""Attention is kept whole, with any options, and computes what torch's own does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from transforms import run_passes
from transforms.graph.editor import fake_value
from transforms.lowering.metal import _generate
from transforms.passes.metal.keep_attention_whole import KeepAttentionWhole
from zoo.errors import PassError

aten = torch.ops.aten


class Attention(nn.Module):
    """One attention, and the reshape that models put behind it."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """(..., heads, L, E) to (..., L, heads * V)."""
        out = nn.functional.scaled_dot_product_attention(q, k, v, mask, **self.options)
        return out.transpose(-3, -2).flatten(-2) if q.dim() > 2 else out


def _kept_whole(module: nn.Module, arguments: tuple[torch.Tensor, ...]) -> torch.Tensor:
    program = torch.export.export(module, arguments, strict=False).run_decompositions({})
    whole, _ = KeepAttentionWhole()(program)
    [call] = [node for node in whole.graph.nodes if "attention" in str(node.target)]
    assert call.target is torch.ops.menagerie.attention.default
    query, key, value = (fake_value(operand) for operand in call.args[:3])
    assert {query.dim(), key.dim(), value.dim()} == {4}
    assert key.shape[1] == value.shape[1]
    assert query.shape[1] % key.shape[1] == 0
    result: torch.Tensor = whole.module()(*arguments)
    return result


def _operands(heads: int = 4, key_heads: int = 4) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(3)
    sizes = ((heads, 5, 8), (key_heads, 7, 8), (key_heads, 7, 6))
    return tuple(torch.randn(2, *each) for each in sizes)


@pytest.mark.parametrize(
    ("options", "key_heads"),
    [({}, 4), ({"is_causal": True}, 4), ({"scale": 0.3}, 4), ({"enable_gqa": True}, 2)],
)
def test_options(options: dict[str, Any], key_heads: int) -> None:
    """Plain, causal, scaled and with shared key heads."""
    operands = _operands(key_heads=key_heads)
    module = Attention(**options)
    torch.testing.assert_close(_kept_whole(module, operands), module(*operands))


@pytest.mark.parametrize(
    ("heads", "grouped"),
    [((4, 1, 1), False), ((1, 4, 4), False), ((4, 1, 4), False), ((4, 2, 1), True)],
)
def test_heads_that_serve_several(heads: tuple[int, int, int], grouped: bool) -> None:
    """One head of queries, keys or values meets all of the others', as broadcasting has it."""
    q, k, v = (_operands(h, h)[i] for i, h in enumerate(heads))
    module = Attention(enable_gqa=grouped)
    torch.testing.assert_close(_kept_whole(module, (q, k, v)), module(q, k, v))


@pytest.mark.parametrize("boolean", [True, False])
def test_masks(boolean: bool) -> None:
    """Boolean masks and added ones; a row that is masked as a whole gives zeros, as in torch."""
    mask = torch.rand(2, 1, 5, 7) > 0.4
    mask[0, 0, 2] = False
    operands = (*_operands(), mask if boolean else torch.where(mask, 0.0, -torch.inf))
    module = Attention()
    result = _kept_whole(module, operands)
    torch.testing.assert_close(result, module(*operands))
    assert result[0, 2].eq(0).all()


@pytest.mark.parametrize(
    ("leading", "mask_sizes"),
    [
        ((), None),
        ((), (5, 7)),
        ((4,), None),
        ((4,), (5, 7)),
        ((4,), (1, 5, 7)),
        ((2, 3, 4), None),
        ((2, 3, 4), (4, 1, 7)),
        ((2, 3, 4), (3, 1, 1, 7)),
        ((2, 3, 4), (2, 1, 4, 5, 7)),
    ],
)
def test_any_number_of_axes(leading: tuple[int, ...], mask_sizes: tuple[int, ...] | None) -> None:
    """One matrix, heads without a batch, a batch of two axes; masks of as many axes, or fewer."""
    operands = [torch.randn(*leading, *sizes) for sizes in ((5, 8), (7, 8), (7, 6))]
    if mask_sizes is not None:
        operands.append(torch.randn(mask_sizes))
    module = Attention()
    torch.testing.assert_close(_kept_whole(module, tuple(operands)), module(*operands))


def test_programs_without_attention_stay_themselves() -> None:
    """Nothing to keep whole: the very same program."""
    program = torch.export.export(nn.ReLU(), (torch.ones(2),), strict=False)
    assert KeepAttentionWhole()(program)[0] is program


def test_dropout_is_refused() -> None:
    """An artifact draws no random numbers."""
    with pytest.raises(PassError, match="dropout"):
        _kept_whole(Attention(dropout_p=0.5), _operands())


def test_the_heads_of_a_place_are_joined_without_a_copy() -> None:
    """The kernel's result is laid out as the reshape behind it wants it: no kernel is generated."""
    program = torch.export.export(Attention(), _operands(), strict=False).run_decompositions({})
    finished, _ = run_passes(program, target="metal")
    code = _generate("main", finished)
    assert "aoti_torch_mps_attention" in code.kernel_uses
    assert code.shaders == {}
