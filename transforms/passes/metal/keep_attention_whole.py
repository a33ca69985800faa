"""Attention kept whole for Metal, whose runtime computes it without ever storing its scores.

The kernel is `runtime/metal/attention.cpp`; here it is declared, so that a program can call it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from transforms.graph.editor import ProgramEditor
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.guards import surely_equal
from transforms.graph.schemas import declare
from transforms.passes.lay_out_weights import let_views_copy

aten = torch.ops.aten
_HEADS = -3  # the axis of heads, counted from the end
_RANK = 4  # of what the kernel takes: batch, heads, places, width
_SCHEMA = (
    "attention(Tensor query, Tensor key, Tensor value, Tensor? mask, bool is_causal, float? scale)"
    " -> Tensor"
)


def _shape(query: Tensor, _key: Tensor, value: Tensor, *_: object) -> Tensor:
    batch, heads, places, _width = query.shape
    return query.new_empty((batch, places, heads, value.shape[-1]))


def _compute(  # noqa: PLR0917
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool,
    scale: float | None,
) -> Tensor:  # fmt: skip
    if mask is not None and mask.dtype is torch.bool:  # which torch's definition would add
        hidden = torch.zeros(mask.shape, dtype=query.dtype)
        mask = hidden.masked_fill(~mask, -torch.inf)
    by_heads: Tensor = aten._scaled_dot_product_attention_math.default(
        query, key, value, mask, 0.0, is_causal, scale=scale, enable_gqa=True
    )[0]
    return by_heads.transpose(1, 2)


# Its result is (batch, places, heads, width): models join the heads of a place next, and of a
# result laid out so, this is no copy.
declare(_SCHEMA, _compute, _shape)


class KeepAttentionWhole(GraphPass):
    """Replaces each attention with a call of the runtime's kernel.

    Left as it is, torch would ask its own device what fused attention it has, which on another host
    has none to ask.
    """

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Call the kernel for all attentions, if there are any."""
        operator = aten.scaled_dot_product_attention.default
        found = editor.calls(operator)
        if not found:
            return
        let_views_copy(editor)  # those of its result count on the strides that the operator gives
        editor.decompose({operator: attention})
        for node in found:
            journal.changed(f"kept {node.name} whole")


def attention(  # noqa: PLR0917
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Compute softmax(scale query key^T + mask) value of (..., L, E), (..., S, E), (..., S, V).

    The mask broadcasts to (..., L, S). The axes before heads become one batch. Raise
    NotImplementedError for attention with dropout.
    """
    if dropout_p != 0.0:
        raise NotImplementedError("attention with dropout")
    operands = [each.unsqueeze(0) if each.dim() < -_HEADS else each for each in (query, key, value)]
    leading = [each.shape[:_HEADS] for each in operands]
    batch = torch.broadcast_shapes(*leading)  # type: ignore[no-untyped-call]
    heads = operands[0].shape[_HEADS]
    if not enable_gqa:  # one that is alone stands for all
        heads = torch.broadcast_shapes(*((each.shape[_HEADS],) for each in operands))[0]  # type: ignore[no-untyped-call]
    elif operands[1].shape[_HEADS] != operands[2].shape[_HEADS]:  # queries share them otherwise
        operands[1:] = [
            each.repeat_interleave(heads // each.shape[_HEADS], _HEADS) for each in operands[1:]
        ]
    q, k, v = (
        _batched(each, (*batch, each.shape[_HEADS] if enable_gqa else heads, *each.shape[-2:]))
        for each in operands
    )
    if attn_mask is not None and attn_mask.dim() >= _RANK:
        attn_mask = _batched(attn_mask, (*batch, *attn_mask.shape[_HEADS:]))
    by_places = torch.ops.menagerie.attention.default(q, k, v, attn_mask, is_causal, scale)
    result: Tensor = by_places.transpose(1, 2)
    before = (*batch, heads) if query.dim() >= -_HEADS else ()
    return result.reshape(*before, query.shape[-2], value.shape[-1])


def _batched(operand: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Reshape to (batch, heads, positions, width); the axes before heads are any."""
    batch = math.prod(sizes[:_HEADS])
    if operand.dim() == _RANK and surely_equal(operand.shape[:2], (batch, sizes[_HEADS])):
        return operand
    return operand.expand(sizes).reshape(batch, *sizes[_HEADS:])
