"""Cases of sorting and of running sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from case import NUMBERS, Table, floats, integers, numbers, short

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = Table()
aten = torch.ops.aten

_WITH_NAN = integers(5, 6).float()
_WITH_NAN.view(-1)[::4] = torch.nan
_ONE_WITH_NAN = torch.stack([_WITH_NAN, floats(5, 6)])


def _operands() -> Iterator[tuple[str, torch.Tensor, int]]:
    """A name, an operand and an axis of it."""
    yield "last axis", integers(4, 7).float(), -1
    yield "first axis", integers(4, 7).float(), 0
    yield "middle axis", integers(2, 5, 3).float(), 1
    yield "with NaN", _WITH_NAN, 1
    yield "no axis", floats(), 0
    yield "empty", floats(0, 3), 1
    yield "empty rows", floats(3, 0), 1
    yield "many empty rows", floats(5_000_000, 0), 1
    yield "empty columns", floats(0, 3), 0
    yield "rows of an empty axis", floats(3, 0), 0
    yield "whole numbers, empty rows", integers(4, 0, 2), 1
    yield "one row of many", integers(1, 300, low=-50, high=50).float(), 1
    yield "rows of thousands", integers(2, 3000, low=-50, high=50).float(), 1
    yield "columns of thousands", integers(1100, 3, low=-50, high=50).float(), 0
    for dtype in (*NUMBERS[1:], torch.float64, torch.bool):
        yield short(dtype), numbers(3, 6, dtype=dtype), 1


def _sorted(self: torch.Tensor, dim: int, descending: int, **_: Any) -> Any:
    return torch.sort(self, dim=dim, descending=bool(descending), stable=True)


def _topk(self: torch.Tensor, k: int, dim: int, largest: int, **_: Any) -> Any:
    """Torch's choice among equal values is free: the first ones, as a stable sort gives them."""
    values, indices = torch.sort(self, dim=dim, descending=bool(largest), stable=True)
    if self.dim() == 0:
        return values, indices
    return values.narrow(dim, 0, k).contiguous(), indices.narrow(dim, 0, k).contiguous()


for name, self_, dim in _operands():
    descending = len(name) % 2
    TABLE.add(
        "sort_stable",
        name,
        {"self": self_, "stable": 1, "dim": dim, "descending": descending},
        _sorted,
        strides=True,
    )
    length = self_.shape[dim] if self_.dim() else 1
    TABLE.add(
        "topk",
        name,
        {"self": self_, "k": min(length, 3), "dim": dim, "largest": descending, "sorted": 1},
        _topk,
        strides=True,
    )
TABLE.add(
    "topk",
    "none of a number",
    {"self": floats(), "k": 0, "dim": 0, "largest": 1, "sorted": 1},
    _topk,
)

for name, self_, dim in _operands():
    if self_.dtype is torch.bool:
        continue
    for operator in ("cumsum", "cumprod"):
        if operator == "cumprod" and self_.numel() > 100:
            continue  # beyond all numbers
        TABLE.add(
            operator,
            name,
            {"self": self_, "dim": dim, "dtype": None},
            getattr(aten, operator),
            strides=True,
        )
    if self_.is_floating_point():
        TABLE.add("logcumsumexp", name, {"self": self_, "dim": dim}, aten.logcumsumexp)
for operator in ("cummax", "cummin"):
    for name, self_, dim in _operands():
        TABLE.add(operator, name, {"self": self_, "dim": dim}, getattr(aten, operator))
TABLE.add(
    "cumsum",
    "booleans count",
    {"self": integers(9, low=0, high=2, dtype=torch.bool), "dim": 0, "dtype": None},
    aten.cumsum,
)
TABLE.add(
    "cumsum",
    "integers as float32",
    {"self": integers(3, 9), "dim": 1, "dtype": 6},
    lambda self, dim, **_: torch.cumsum(self, dim, dtype=torch.float32),
)
TABLE.add(
    "cumsum",
    "a long row",
    {"self": floats(1, 5000), "dim": 1, "dtype": None},
    lambda self, dim, **_: torch.cumsum(self.double(), dim).float(),
    tolerance=1e-4,
)
TABLE.add(
    "cumprod",
    "a long row",
    {"self": floats(3, 700).exp2(), "dim": 1, "dtype": None},
    lambda self, dim, **_: torch.cumprod(self.double(), dim).float(),
    tolerance=1e-3,
)
for operator in ("cummax", "cummin"):
    TABLE.add(
        operator,
        "long rows with NaN and equal values",
        {
            "self": integers(2, 900, low=-9)
            .float()
            .masked_fill(torch.arange(900) > 700, torch.nan),
            "dim": 1,
        },
        getattr(aten, operator),
    )
TABLE.add(
    "logcumsumexp",
    "infinities",
    {"self": torch.tensor([-torch.inf, -torch.inf, 1.0, 800.0, torch.inf]), "dim": 0},
    aten.logcumsumexp,
)

for name, self_, dim in _operands():
    if self_.numel() == 0 or self_.dtype in (torch.bool, torch.float16):
        continue
    TABLE.add("median", name, {"self": self_}, aten.median)
    length = self_.shape[dim] if self_.dim() else 1
    for k in {1, length, (length + 1) // 2}:
        # Which of equal values is meant is free; the values are not.
        TABLE.add(
            "kthvalue",
            f"{name}, k = {k}",
            {"self": self_, "k": k, "dim": dim, "keepdim": k % 2},
            lambda self, k, dim, keepdim: torch.kthvalue(self, k, dim, bool(keepdim))[:1],
        )
for repeats in (torch.tensor([1, 0, 3]), torch.tensor([2, 2], dtype=torch.int32), integers(0)):
    TABLE.add(
        "repeat_interleave_Tensor",
        str(repeats.tolist()),
        {"repeats": repeats, "output_size": None},
        lambda repeats, **_: torch.repeat_interleave(repeats.long()),
    )
for p in (0.0, 1.0, 2.0, 3.0, float("inf")):
    TABLE.add(
        "_cdist_forward",
        f"p = {p}",
        {"x1": _ONE_WITH_NAN, "x2": floats(2, 3, 6), "p": p, "compute_mode": None},
        lambda x1, x2, p, **_: torch.cdist(x1.double(), x2.double(), p).float(),
    )

_X = floats(3, 2)
TABLE.refuse("topk", "k = 4 is not within axis 0", self=_X, k=4, dim=0, largest=1, sorted=1)
TABLE.refuse("topk", "k = -1 is not within axis 0", self=_X, k=-1, dim=0, largest=1, sorted=1)
TABLE.refuse("topk", "axis 5 is not in", self=_X, k=1, dim=5, largest=1, sorted=1)
TABLE.refuse("sort_stable", "axis -3 is not in", self=_X, stable=1, dim=-3, descending=0)
for operator in ("cumsum", "cumprod"):
    TABLE.refuse(operator, "axis -3 is not in", self=_X, dim=-3, dtype=None)
    TABLE.refuse(operator, "dtype number 99 is not supported", self=_X, dim=0, dtype=99)
for operator in ("cummax", "cummin", "logcumsumexp"):
    TABLE.refuse(operator, "axis 2 is not in", self=_X, dim=2)
TABLE.refuse("logcumsumexp", "floating", self=integers(3), dim=0)
TABLE.refuse("kthvalue", "k = 4 is not within axis 0", self=_X, k=4, dim=0, keepdim=0)
TABLE.refuse(
    "repeat_interleave_Tensor", "negative", repeats=torch.tensor([1, -1]), output_size=None
)
TABLE.refuse("_cdist_forward", "do not fit", x1=_X, x2=floats(2, 3), p=2.0, compute_mode=None)
