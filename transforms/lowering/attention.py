"""Attention written out for targets that generate its softmax themselves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from transforms.editor import ProgramEditor
from transforms.lowering.layouts import let_views_copy

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["attention", "write_out_attention"]

aten = torch.ops.aten


def write_out_attention(program: ExportedProgram) -> ExportedProgram:
    """Replace each attention by two products and a softmax, by the formula in torch's docs.

    Inductor fuses scale, mask and softmax into kernels of its own. Left whole, torch would ask its
    own device what fused attention it has, which on another host has none to ask.
    """
    operator = aten.scaled_dot_product_attention.default
    if not any(node.target is operator for node in program.graph.nodes):
        return program
    editor = ProgramEditor(program)
    let_views_copy(editor)  # those of its result count on the strides that the operator gives
    written_out: ExportedProgram = editor.finish().run_decompositions({operator: attention})
    return written_out


def attention(  # noqa: PLR0917
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """`softmax(scale query key^T + mask) value`, of (..., L, E), (..., S, E) and (..., S, V)."""
    if dropout_p != 0.0:
        raise NotImplementedError("attention with dropout")
    if enable_gqa:
        key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
        value = value.repeat_interleave(query.size(-3) // value.size(-3), -3)
    factor = scale if scale is not None else 1 / math.sqrt(query.size(-1))
    dtype = query.dtype
    if dtype in {torch.float16, torch.bfloat16}:  # sums and scores in single, rounded once
        query, key, value = query.float(), key.float(), value.float()
    scores = (query * factor) @ key.transpose(-2, -1)
    if is_causal:
        rows, columns = query.size(-2), key.size(-2)
        attn_mask = torch.ones(rows, columns, dtype=torch.bool, device=query.device).tril()
    if attn_mask is None:
        return (torch.softmax(scores, -1) @ value).to(dtype)
    if attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    else:
        scores = scores + attn_mask
    # Of a row that is masked as a whole torch makes zeros, where softmax alone gives NaN.
    weights: torch.Tensor = aten._safe_softmax.default(scores, -1)
    return (weights @ value).to(dtype)
