"""Cases of scaled dot-product attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from case import FLOATS, Table, floats, short

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = Table()
_FLASH = "_scaled_dot_product_flash_attention_for_cpu"
_MATH = "_scaled_dot_product_attention_math_for_mps"


def _operands() -> Iterator[tuple[str, dict[str, Any]]]:
    def of(queries: int, keys: int, width: int, heads: int = 2, **rest: Any) -> dict[str, Any]:
        return {
            "query": floats(2, heads, queries, width),
            "key": floats(2, heads, keys, width, seed=1),
            "value": floats(2, heads, keys, width, seed=2),
            "attn_mask": None,
            "dropout_p": 0.0,
            "is_causal": 0,
            "scale": None,
            **rest,
        }

    yield "plain", of(5, 7, 8)
    yield "one query", of(1, 9, 4)
    yield "one key", of(4, 1, 4)
    yield "beyond a block", of(70, 130, 16, heads=1)
    yield "scaled", of(5, 7, 8, scale=0.3)
    yield "causal", of(6, 6, 8, is_causal=1)
    yield "whole mask", of(5, 7, 8, attn_mask=floats(2, 2, 5, 7))
    yield "mask of keys", of(5, 7, 8, attn_mask=floats(2, 1, 1, 7))
    yield "mask of two axes", of(5, 7, 8, attn_mask=floats(5, 7))
    masked = torch.zeros(5, 7)
    masked[:, 4:] = -torch.inf
    yield "hidden keys", of(5, 7, 8, attn_mask=masked)
    yield "boolean mask", of(5, 7, 8, attn_mask=floats(1, 2, 5, 7) < 0.5)
    yield "one key for all", of(5, 7, 8, key=floats(2, 1, 1, 8).expand(2, 2, 7, 8))
    yield "one query for all", of(5, 7, 8, query=floats(2, 2, 1, 8).expand(2, 2, 5, 8))
    yield "one value for all", of(5, 7, 8, value=floats(8).expand(2, 2, 7, 8))
    yield "overlapping keys", of(5, 7, 8, key=floats(2, 2, 14).unfold(2, 8, 1))
    yield "a column as the one query", of(1, 9, 4, query=floats(2, 2, 4, 1).mT)
    yield "columns as the one key", of(3, 1, 4, key=floats(2, 2, 4, 1).mT)


def _math(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **rest: Any) -> Any:
    """By the definition, in double precision."""
    mask, scale = rest["attn_mask"], rest["scale"] or query.shape[-1] ** -0.5
    repeated = query.shape[1] // key.shape[1]
    k, v = (t.double().repeat_interleave(repeated, 1) for t in (key, value))
    scores = query.double() @ k.mT * scale
    if rest["is_causal"]:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is not None:
        boolean = mask.dtype is torch.bool
        scores = scores.masked_fill(~mask, -torch.inf) if boolean else scores + mask.double()
    weights = scores.softmax(-1)
    return (weights @ v).to(query.dtype), weights.to(query.dtype)


def _flash(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **rest: Any) -> Any:
    """Eager's own, whose second result is the log-sum-exp of the scores.

    It takes no booleans, and reads past its operands if their last axes have gaps.
    """
    query, key, value = (t.contiguous() for t in (query, key, value))
    mask = rest["attn_mask"]
    if mask is not None and mask.dtype is torch.bool:
        mask = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    mask = mask if mask is None else mask.contiguous()
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, bool(rest["is_causal"]), attn_mask=mask, scale=rest["scale"]
    )


def _unknown_query() -> tuple[str, dict[str, Any]]:
    """Not for the flash kernel: eager's says nought for the log-sum-exp of NaN scores."""
    _, plain = next(_operands())
    query = plain["query"].clone()
    query[0, 1, 2] = torch.nan
    return "a query that is NaN", {**plain, "query": query}


for name, arguments in _operands():
    TABLE.add(_FLASH, name, arguments, _flash, tolerance=1e-4, targets=("cpu",))
for name, arguments in (*_operands(), _unknown_query()):
    TABLE.add(
        _MATH,
        name,
        {**arguments, "dropout_mask": None},
        _math,
        tolerance=1e-4,
        targets=("metal",),
    )
    TABLE.add(
        f"{_MATH}_v2",
        name,
        {**arguments, "dropout_mask": None, "enable_gqa": 0},
        _math,
        tolerance=1e-4,
        targets=("metal",),
    )
_, _PLAIN = next(_operands())
_GROUPED = {
    **_PLAIN,
    "key": floats(2, 1, 7, 8),
    "value": floats(2, 1, 7, 8, seed=1),
    "query": floats(2, 6, 5, 8),
    "dropout_mask": None,
}
_CHANGES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("grouped heads", {}),
    ("grouped heads, causal", {"is_causal": 1}),
    ("grouped heads, mask", {"attn_mask": floats(2, 6, 5, 7)}),
)
for name, change in _CHANGES:
    TABLE.add(
        f"{_MATH}_v2",
        name,
        {**_GROUPED, **change, "enable_gqa": 1},
        _math,
        tolerance=1e-4,
        targets=("metal",),
    )
for dtype in FLOATS[1:]:
    halved = {name: _PLAIN[name].to(dtype) for name in ("query", "key", "value")}
    TABLE.add(
        _MATH,
        short(dtype),
        {**_PLAIN, **halved, "dropout_mask": None},
        _math,
        targets=("metal",),
    )
    TABLE.add(
        _MATH,
        f"{short(dtype)}, mask of float32",
        {**_PLAIN, **halved, "dropout_mask": None, "attn_mask": floats(2, 1, 5, 7)},
        _math,
        targets=("metal",),
    )
    TABLE.add(
        _FLASH,
        short(dtype),
        {**_PLAIN, **halved},
        lambda query, key, value, **rest: (
            _flash(query.float(), key.float(), value.float(), **rest)[0].to(query.dtype),
        ),
        targets=("cpu",),
    )

_MISFITS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"key": floats(2, 2, 7, 7)}, "shapes do not fit"),
    ({"value": floats(2, 3, 7, 8)}, "shapes do not fit"),
    ({"dropout_p": 0.5}, "dropout 0.5 is for training"),
    ({"attn_mask": floats(1, 1, 4, 7)}, "does not fit query"),
    ({"value": floats(2, 2, 7, 8).half()}, "differ in dtype"),
)
TABLE.refuse(
    _FLASH,
    "in single precision",
    **{name: v.double() if isinstance(v, torch.Tensor) else v for name, v in _PLAIN.items()},
)
for change, fact in _MISFITS:
    TABLE.refuse(_FLASH, fact, **{**_PLAIN, **change})
    TABLE.refuse(_MATH, fact, **{**_PLAIN, **change, "dropout_mask": None})
    TABLE.refuse(f"{_MATH}_v2", fact, **{**_PLAIN, **change, "dropout_mask": None, "enable_gqa": 0})
