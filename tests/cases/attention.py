"""Cases of scaled dot-product attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from case import FLOATS, Table, floats, short

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = Table()
_FLASH = "_scaled_dot_product_flash_attention_for_cpu"
_ATTENTION = "attention"


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
    """By the definition, in double precision; place by place, each with all heads."""
    mask, scale = rest["mask"], rest["scale"] or query.shape[-1] ** -0.5
    repeated = query.shape[1] // key.shape[1]
    k, v = (t.double().repeat_interleave(repeated, 1) for t in (key, value))
    scores = query.double() @ k.mT * scale
    if rest["is_causal"]:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is not None:
        boolean = mask.dtype is torch.bool
        scores = scores.masked_fill(~mask, -torch.inf) if boolean else scores + mask.double()
    return (scores.softmax(-1) @ v).to(query.dtype).transpose(1, 2).contiguous()


def _own(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of our operator, which draws no random numbers."""
    names = ("query", "key", "value", "is_causal", "scale")
    return {name: arguments[name] for name in names} | {"mask": arguments["attn_mask"]}


def _add(
    name: str, arguments: dict[str, Any], tolerance: float | None = None, *, closely: bool = False
) -> None:
    TABLE.add(
        _ATTENTION, name, _own(arguments), _math,
        tolerance=tolerance, closely=closely, strides=True, targets=("metal",),
    )  # fmt: skip


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
    """Not for the flash kernel: eager's says zero for the log-sum-exp of NaN scores."""
    _, plain = next(_operands())
    query = plain["query"].clone()
    query[0, 1, 2] = torch.nan
    return "a query that is NaN", {**plain, "query": query}


for name, arguments in _operands():
    TABLE.add(_FLASH, name, arguments, _flash, tolerance=1e-4, targets=("cpu",))
for name, arguments in (*_operands(), _unknown_query()):
    _add(name, arguments, 1e-4)
_, _PLAIN = next(_operands())
_GROUPED = {
    **_PLAIN,
    "key": floats(2, 1, 7, 8),
    "value": floats(2, 1, 7, 8, seed=1),
    "query": floats(2, 6, 5, 8),
}
_CHANGES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("grouped heads", {}),
    ("grouped heads, causal", {"is_causal": 1}),
    ("grouped heads, mask", {"attn_mask": floats(2, 6, 5, 7)}),
)
for name, change in _CHANGES:
    _add(name, {**_GROUPED, **change}, 1e-4)
for dtype in FLOATS[1:]:
    halved = {name: _PLAIN[name].to(dtype) for name in ("query", "key", "value")}
    _add(short(dtype), {**_PLAIN, **halved})
    masked = {**_PLAIN, **halved, "attn_mask": floats(2, 1, 5, 7)}
    _add(f"{short(dtype)}, mask of float32", masked)
    TABLE.add(
        _FLASH,
        short(dtype),
        {**_PLAIN, **halved},
        lambda query, key, value, **rest: (
            _flash(query.float(), key.float(), value.float(), **rest)[0].to(query.dtype),
        ),
        targets=("cpu",),
    )


def _whole() -> Iterator[tuple[str, dict[str, Any], float]]:
    """Without the weights: what one kernel computes in blocks of keys, and queries, and columns.

    Each with a tolerance: what is odd to a block of 32 comes out as exact as what is not.
    """

    def of(queries: int, keys: int, width: int, columns: int, **rest: Any) -> dict[str, Any]:
        return {
            "query": floats(1, 2, queries, width),
            "key": floats(1, 2, keys, width, seed=1),
            "value": floats(1, 2, keys, columns, seed=2),
            "attn_mask": None,
            "dropout_p": 0.0,
            "is_causal": 0,
            "scale": None,
            **rest,
        }

    single = 4e-6
    yield "odd to all blocks", of(33, 65, 35, 37), single
    yield "just full blocks", of(32, 64, 32, 64), single
    yield "less than a block", of(3, 5, 7, 2), single
    yield "broad values", of(9, 40, 8, 130), single
    yield "broad queries", of(9, 40, 200, 70), single
    yield "many keys", of(5, 700, 8, 8), single
    yield "one query, many keys", of(1, 700, 40, 200), single
    yield "one query beyond a vector", of(1, 40, 260, 8), single
    yield "more queries than keys, causal", of(70, 35, 8, 8, is_causal=1), single
    yield "more keys than queries, causal", of(35, 70, 8, 8, is_causal=1), single
    yield "one query, causal", of(1, 9, 8, 8, is_causal=1), single
    yield "no keys", of(3, 0, 8, 8), single
    for rows in (1, 35):
        mask = floats(1, 1, rows, 70)
        named = f"{rows} of queries, mask"
        yield f"{named} added", of(rows, 70, 8, 8, attn_mask=mask), single
        yield f"{named} of booleans", of(rows, 70, 8, 8, attn_mask=mask > 0), single
        hidden = of(rows, 70, 8, 8, attn_mask=(mask > 0).logical_and(torch.arange(70) > 40))
        yield f"{named} that hides the first keys", hidden, single
        rising = torch.arange(70.0).expand(1, 2, rows, 70)
        yield f"{named} that rises", of(rows, 70, 8, 8, attn_mask=rising), single
        # Of a query, or a value, that is NaN: the row, and the column, and no others.
        unknown = of(rows, 70, 8, 8)
        unknown["query"][0, 1, rows // 2] = torch.nan
        yield f"a NaN of {rows} queries", unknown, single
        unknown = of(rows, 70, 8, 8)
        unknown["value"][0, 1, 3, 2] = torch.nan
        yield f"{rows} of queries, a value that is NaN", unknown, single
        infinite = of(rows, 70, 8, 8)
        infinite["key"][0, 1, 3] *= torch.inf
        yield f"{rows} of queries, an infinite key", infinite, single
    for dtype in FLOATS[1:]:
        halved = {
            name: value.to(dtype) if isinstance(value, torch.Tensor) else value
            for name, value in of(33, 65, 40, 37).items()
        }
        # Large scores show it: rounded to bfloat16, one of 30 is off by an eighth.
        halved["query"], halved["key"] = 3 * halved["query"], 3 * halved["key"]
        step = torch.finfo(dtype).eps
        yield f"{short(dtype)}", halved, step
        for kind in (dtype, torch.float32):
            masked = {**halved, "attn_mask": floats(1, 1, 33, 65).to(kind)}
            yield f"{short(dtype)}, mask of {short(kind)}", masked, step
        one = halved["query"][:, :, :1]
        masked = {**halved, "query": one, "attn_mask": floats(1, 1, 1, 65).to(dtype)}
        yield f"one query of {short(dtype)}", masked, step


def _hidden_row(queries: int) -> dict[str, Any]:
    """One query sees no key: torch's own attention gives zero for it, where softmax gives NaN."""
    mask = floats(2, 1, queries, 7) < 0.4
    mask[0, 0, queries // 2] = False
    return {**_PLAIN, "query": floats(2, 2, queries, 8), "attn_mask": mask}


def _torch(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **rest: Any) -> Any:
    """Eager's own, in double precision."""
    result = torch.nn.functional.scaled_dot_product_attention(
        query.double(), key.double(), value.double(), rest["mask"]
    )
    return result.to(query.dtype).transpose(1, 2)


for name, arguments, tolerance in _whole():
    _add(name, arguments, tolerance, closely=True)
for queries in (1, 5):
    TABLE.add(
        _ATTENTION,
        f"one of {queries} queries sees no key",
        _own(_hidden_row(queries)),
        _torch,
        targets=("metal",),
    )
for name, change in _CHANGES:
    for rows in (1, 5):
        mask = change.get("attn_mask")
        fewer = {
            "query": floats(2, 6, rows, 8),
            "attn_mask": None if mask is None else mask[:, :, :rows],
        }
        _add(f"{name}, {rows} of queries", {**_GROUPED, **change, **fewer})


_NAMES = ("query", "key", "value", "positions", "bias", "place_bias")


def _by_position(mask: torch.Tensor, scale: float, hidden: float, **operands: Any) -> Any:
    """By the definition, a row of positions after the other, in double precision."""
    q, k, v, positions, *biases = (operands[name].double() for name in _NAMES)
    rows, (content, placing) = q.shape[2], (q + bias[:, None] for bias in biases)
    scores = placing @ positions.mT * scale
    placed = [scores[:, :, i, rows - 1 - i :][..., : k.shape[2]] for i in range(rows)]
    hiding = torch.stack(placed, 2).masked_fill(~mask, hidden)
    result = (content @ k.mT * scale + hiding).softmax(-1) @ v
    return result.to(operands["query"].dtype).transpose(1, 2).contiguous()


for rows, dtype in ((1, torch.float32), (70, torch.float32), *((9, d) for d in FLOATS[1:])):
    sizes = ((2, 3, rows, 70), (2, 3, 33, 70), (2, 3, 33, 130), (1, 3, rows + 33, 70))
    given: dict[str, Any] = {
        name: floats(*size, seed=i).to(dtype)
        for i, (name, size) in enumerate(zip(_NAMES, (*sizes, (3, 70), (3, 70)), strict=True))
    } | {"scale": 0.1, "hidden": -50.0, "mask": floats(2, 1, rows, 33) > 0.1}
    given["mask"][0, 0, rows // 2] = False
    TABLE.add(
        "relative_attention", f"{rows} rows, {short(dtype)}", given, _by_position, strides=True,
        tolerance=1e-5 if dtype is torch.float32 else None, targets=("metal",),
    )  # fmt: skip
TABLE.refuse("relative_attention", "positions do not fit", **given | {"bias": floats(70)})

_MISFITS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"key": floats(2, 2, 7, 7)}, "shapes do not fit"),
    ({"value": floats(2, 3, 7, 8)}, "shapes do not fit"),
    ({"attn_mask": floats(1, 1, 4, 7)}, "cannot take"),
    ({"value": floats(2, 2, 7, 8).half()}, "differ in dtype"),
)
TABLE.refuse(
    _FLASH,
    "in single precision",
    **{name: v.double() if isinstance(v, torch.Tensor) else v for name, v in _PLAIN.items()},
)
TABLE.refuse(_FLASH, "dropout 0.5 is for training", **{**_PLAIN, "dropout_p": 0.5})
for change, fact in _MISFITS:
    TABLE.refuse(_FLASH, fact, **{**_PLAIN, **change})
    TABLE.refuse(_ATTENTION, fact, **_own({**_PLAIN, **change}))
