"""Keep attention whole for Metal, whose runtime computes it without ever storing its scores.

The kernel is `runtime/metal/attention.cpp`; this module declares it, so that programs can call it.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from transforms.graph.editor import ProgramEditor, fake_value
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.guards import surely_equal
from transforms.graph.schemas import bound_arguments, declare
from transforms.passes.lay_out_weights import let_views_copy
from transforms.passes.merge_common_subexpressions import MergeCommonSubexpressions
from transforms.passes.unpad_relative_shift import is_certain, room_beside, shifted_scores

aten = torch.ops.aten
_HEADS = -3  # the axis of heads, counted from the end
_RANK = 4  # of the kernel's operands: batch, heads, positions, width
_SCHEMA = (
    "attention(Tensor query, Tensor key, Tensor value, Tensor? mask, bool is_causal, float? scale)"
    " -> Tensor"
)
_RELATIVE = (
    "relative_attention(Tensor query, Tensor key, Tensor value, Tensor? mask, Tensor positions,"
    " Tensor bias, Tensor place_bias, float scale, float hidden) -> Tensor"
)
_WIDEST = 128  # head width with relative positions


def _shape(query: Tensor, _key: Tensor, value: Tensor, *_: object) -> Tensor:
    batch, heads, places, _width = query.shape
    return query.new_empty((batch, places, heads, value.shape[-1]))


def _compute(  # noqa: PLR0917
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool,
    scale: float | None,
) -> Tensor:  # fmt: skip
    if mask is not None and mask.dtype is torch.bool:  # torch's definition would add it as numbers
        hidden = torch.zeros(mask.shape, dtype=query.dtype)
        mask = hidden.masked_fill(~mask, -torch.inf)
    by_heads: Tensor = aten._scaled_dot_product_attention_math.default(
        query, key, value, mask, 0.0, is_causal, scale=scale, enable_gqa=True
    )[0]
    return by_heads.transpose(1, 2)


# Its result is (batch, positions, heads, width): models next join the heads of a position, which
# needs no copy in this layout.
declare(_SCHEMA, _compute, _shape)


def _compute_relative(  # noqa: PLR0917
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, positions: Tensor,
    bias: Tensor, place_bias: Tensor, scale: float, hidden: float,
) -> Tensor:  # fmt: skip
    scores, rows = (query + place_bias[:, None]) @ positions.mT * scale, query.shape[2]
    shifted = (scores[..., i, rows - 1 - i :][..., : key.shape[2]] for i in range(rows))
    placed = torch.stack([*shifted], -2)
    placed = placed if mask is None else placed.masked_fill(~mask, hidden)
    return _compute(query + bias[:, None], key, value, placed, False, scale)


declare(_RELATIVE, _compute_relative, _shape)


class KeepAttentionWhole(GraphPass):
    """Replaces each attention with a call of the runtime's kernel.

    If its mask consists of shifted scores of relative positions (Transformer-XL, arXiv:1901.02860,
    appendix B), the same kernel computes them. If attention stayed as it is, torch would query its
    own device for fused attention, and another host has no such device.
    """

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Call the kernel for all attentions, if there are any."""
        operator = aten.scaled_dot_product_attention.default
        found = editor.calls(operator)
        if not found:
            return
        let_views_copy(editor)  # views of its result rely on the operator's strides
        made = [(node, whole) for node in found if (whole := _relative(editor, node)) is not None]
        for node, whole in made:
            editor.replace(node, whole)
        if made:
            MergeCommonSubexpressions().rewrite(editor, journal)  # shared masks of attentions
        editor.decompose({operator: attention})
        for node in found:
            journal.changed(f"kept {node.name} whole")


def attention(  # noqa: PLR0917
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Compute softmax(scale query key^T + mask) value for (..., L, E), (..., S, E), (..., S, V).

    The mask broadcasts to (..., L, S). The axes before heads are merged into one batch. Raise
    NotImplementedError for attention with dropout.
    """
    if dropout_p != 0.0:
        raise NotImplementedError("attention with dropout")
    if is_causal and query.dim() != _RANK:  # eager adds this mask, so that hidden NaN stays
        hidden = query.new_full((query.shape[-2], key.shape[-2]), -torch.inf)
        attn_mask, is_causal = hidden.triu(1), False
    operands = [each.unsqueeze(0) if each.dim() < -_HEADS else each for each in (query, key, value)]
    leading = [each.shape[:_HEADS] for each in operands]
    batch = torch.broadcast_shapes(*leading)  # type: ignore[no-untyped-call]
    heads = operands[0].shape[_HEADS]
    if not enable_gqa:  # a single head broadcasts to all
        heads = torch.broadcast_shapes(*((each.shape[_HEADS],) for each in operands))[0]  # type: ignore[no-untyped-call]
    elif operands[1].shape[_HEADS] != operands[2].shape[_HEADS]:  # k and v are shared differently
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
    """Reshape to (batch, heads, positions, width), with any number of axes before heads."""
    batch = math.prod(sizes[:_HEADS])
    if operand.dim() == _RANK and surely_equal(operand.shape[:2], (batch, sizes[_HEADS])):
        return operand
    return operand.expand(sizes).reshape(batch, *sizes[_HEADS:])


def _relative(editor: ProgramEditor, node: Node) -> Node | None:
    """Return a call that also computes an attention's mask, if that is made of relative scores."""
    given = bound_arguments(node)
    query, key, value, mask = (given[n] for n in ("query", "key", "value", "attn_mask"))
    scaled, *hiding = mask.args if _calls(mask, aten.masked_fill.Scalar) else (mask,)
    if not _calls(scaled, aten.mul.Tensor) or not _calls(scaled.args[0], aten.slice.Tensor):
        return None
    shifted, scale = scaled.args
    scores: Any = shifted_scores(shifted)
    if scores is None or not _calls(scores, aten.matmul.default):
        return None
    placing, turned = scores.args
    sums = [n for n in (query, placing) if _calls(n, aten.add.Tensor)]
    if [(len(n.all_input_nodes), n.kwargs) for n in sums] != [(2, {})] * 2:
        return None
    (plain, *bias), (same, *place_bias) = query.args, placing.args
    operands: Any = (plain, key, value, mask, turned, *bias, *place_bias)
    values = [fake_value(n) for n in (query, *operands)]
    if any((v.dim(), v.dtype) != (_RANK, values[0].dtype) for v in values):
        return None
    whole, *sizes = (v.shape for v in values)
    (batch, heads, rows, width), columns = whole, sizes[1][-2]
    fits = [
        whole,
        (batch, heads, columns, width), (batch, heads, columns, sizes[2][-1]),
        (batch, heads, rows, columns), (sizes[4][0], heads, width, sizes[4][-1]),
        *[(1, heads, 1, width)] * 2,
    ]  # fmt: skip
    if (
        plain is not same
        or scale != (given["scale"] or width**-0.5)
        or given["dropout_p"] or given["is_causal"] or width > _WIDEST
        or not all(map(surely_equal, sizes, fits))
        or not is_certain(editor, room_beside(scores, shifted)[0])
    ):  # fmt: skip
        return None
    (hidden, fill), call = hiding or (None, 0.0), partial(editor.call, like=node)
    seen = None if hidden is None else call(aten.logical_not.default, hidden)
    operands = [plain, key, value, seen, call(aten.transpose.int, turned, 2, 3)]
    operands += [call(aten.flatten.using_ints, each, 0, 2) for each in (*bias, *place_bias)]
    operator = torch.ops.menagerie.relative_attention.default
    return call(aten.transpose.int, call(operator, *operands, scale, fill), 1, 2)


def _calls(value: Any, target: Any) -> bool:
    return isinstance(value, Node) and value.target is target
