"""Cases of indexing, scattering and searching."""

from __future__ import annotations

from typing import Any

import torch
from case import FLOATS, NUMBERS, Table, floats, integers, numbers, short

TABLE = Table()
aten = torch.ops.aten


def _rows(*sizes: int, of: int, seed: int = 0) -> torch.Tensor:
    """Indices into an axis, negative ones too."""
    return integers(*sizes, low=-of, high=of, seed=seed)


_X, _ROW = floats(4, 5, 6), _rows(3, of=4)
for name, indices in (
    ("first axis", [_rows(3, of=4)]),
    ("last axis", [None, None, _rows(3, of=6)]),
    ("first axis, two-dimensional", [_rows(2, 3, of=4)]),
    ("two neighbours", [None, _rows(3, of=5), _rows(3, of=6)]),
    ("two apart", [_rows(3, of=4), None, _rows(3, of=6)]),
    ("broadcast", [_rows(3, 1, of=4), _rows(2, of=5)]),
    ("all axes", [_rows(7, of=4), _rows(7, of=5), _rows(7, of=6)]),
    ("32-bit", [_rows(3, of=4).int()]),
    ("none taken", [_rows(0, of=4)]),
    ("none taken of any axis", [_rows(0, of=4), None, _rows(0, of=6)]),
    ("mask of rows", [torch.tensor([True, False, True, True])]),
    ("mask of all", [_X > 0]),
    ("mask of the middle axis", [None, torch.tensor([True, False, True, True, False])]),
    ("mask that is false", [torch.zeros(4, dtype=torch.bool)]),
):
    TABLE.add("index_Tensor", name, {"self": _X, "indices": indices}, aten.index)
TABLE.add(
    "index_Tensor", "slices of no element", {"self": floats(4, 0), "indices": [_ROW]}, aten.index
)
for dtype in NUMBERS[1:]:
    TABLE.add(
        "index_Tensor",
        short(dtype),
        {"self": numbers(4, 5, dtype=dtype), "indices": [None, _rows(3, of=5)]},
        aten.index,
    )


_TABLE = floats(9, 6)
for name, table, places in (
    ("a list", _TABLE, _rows(7, of=9).abs() % 9),
    ("a matrix of 32-bit", _TABLE, _rows(2, 3, of=9).abs().int() % 9),
    ("one", _TABLE, torch.tensor(8)),
    ("none", _TABLE, torch.zeros(0, 4, dtype=torch.int64)),
    ("strides", floats(6, 18).T[::2], (_rows(7, of=9).abs() % 9)[::2]),
):
    TABLE.add(
        "table_rows",
        name,
        {"table": table, "indices": places},
        lambda table, indices: torch.nn.functional.embedding(indices, table),
        targets=("cpu",),
    )
for outside in (-1, 9):
    reason = f"an index is out of range: {outside} in a table of 9 rows"
    TABLE.refuse("table_rows", reason, table=_TABLE, indices=torch.tensor([3, outside]))


def _index_put(accumulate: int, **given: Any) -> Any:
    return aten.index_put(accumulate=bool(accumulate), **given)


_ORDER = torch.tensor([2, -4, 1])  # no row twice
for name, self_, indices, values in (
    ("rows", floats(4, 5), [_ORDER], floats(3, 5)),
    ("columns", floats(5, 4), [None, _ORDER], floats(5, 3)),
    ("one value for all", floats(4, 5), [_ORDER], floats()),
    ("one row for all", floats(4, 5), [_ORDER], floats(5)),
    ("elements", floats(4, 4), [_ORDER, _ORDER.flip(0)], floats(3)),
    ("mask", floats(4, 5), [floats(4, 5) > 0], floats()),
    ("integers", integers(4, 5), [_ORDER], integers(3, 5)),
    ("bfloat16", floats(4, 5).bfloat16(), [_ORDER], floats(3, 5).bfloat16()),
):
    for accumulate in (0, 1):
        TABLE.add(
            "index_put",
            f"{name}, {'added' if accumulate else 'stored'}",
            {"self": self_, "indices": indices, "values": values, "accumulate": accumulate},
            _index_put,
        )
TABLE.add(
    "index_put",
    "rows twice, added",
    {
        "self": floats(4, 5), "indices": [_rows(9, of=4)], "values": floats(9, 5), "accumulate": 1,
    },
    _index_put,
)  # fmt: skip


def _put_in_turn(self: torch.Tensor, indices: list[Any], values: torch.Tensor, **_: Any) -> Any:
    """Of several values for one place the last stays."""
    result = self.clone()
    for i, place in enumerate(indices[0].tolist()):
        result[place] = values[i]
    return result


# Lists that are too long for one thread to walk.
_LONG = _rows(1500, of=40)
for dtype in NUMBERS:
    for sizes in ((), (3,)):
        given = {"self": numbers(40, *sizes, dtype=dtype), "indices": [_LONG]}
        values = numbers(1500, *sizes, dtype=dtype, seed=1)
        name = f"a long list, {short(dtype)}, slices {list(sizes)}"
        TABLE.add("index_put", name, given | {"values": values, "accumulate": 0}, _put_in_turn)
    TABLE.add(
        "index_put", f"{name}, added", given | {"values": values, "accumulate": 1},
        lambda self, indices, values, **_: aten.index_put(
            self.double(), indices, values.double(), True
        ).to(self.dtype),
        tolerance=1e-4,
    )  # fmt: skip


for dtype in (*NUMBERS, torch.bool, torch.int8, torch.int16):
    parts = [numbers(2, n, 3, dtype=dtype, seed=n) for n in (4, 1, 5)]
    TABLE.add("cat", f"{short(dtype)}, middle axis", {"tensors": parts, "dim": 1}, aten.cat)
for name, parts, dim in (
    ("first axis", [floats(2, 3), floats(4, 3)], 0),
    ("last axis, counted from the end", [floats(2, 3), floats(2, 1)], -1),
    ("a part of no element", [floats(2, 3), floats(2, 0), floats(2, 2)], 1),
    ("an empty list counts for nothing", [torch.empty(0), floats(2, 3), floats(2, 2)], 1),
    ("lists", [floats(3), floats(2), floats(0)], 0),
    ("nothing of several axes", [floats(0, 3), floats(0, 3)], 0),
    ("empty lists alone", [floats(0), floats(0)], 0),
    ("one alone", [floats(2, 3)], 0),
    ("images", [numbers(2, c, 3, 3, dtype=torch.uint8) for c in (1, 3)], 1),
):
    TABLE.add("cat", name, {"tensors": parts, "dim": dim}, aten.cat)
for fact, parts, dim in (
    ("differ in dtype", [floats(2), integers(2)], 0),
    ("differ in number", [floats(2), floats(2, 2)], 0),
    ("differ along another axis than 0", [floats(2, 3), floats(2, 4)], 0),
    ("axis 2 is not in", [floats(2, 3)], 2),
    ("a tensor without axes", [floats()], 0),
    ("there is nothing to join", [], 0),
):
    TABLE.refuse("cat", fact, tensors=parts, dim=dim)


def _without_repetition(dim: int) -> torch.Tensor:
    """An index that names no place twice along an axis: whose value stays is not defined."""
    orders = [torch.randperm(4, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    return torch.stack(orders, dim=-1 - dim)[:3, :3]


for dtype in NUMBERS:
    for dim in (0, -1):
        self_ = numbers(4, 4, dtype=dtype)
        into = {"out": torch.empty(4, 4, dtype=dtype), "self": self_, "dim": dim}
        name, index = f"{short(dtype)}, axis {dim}", _without_repetition(dim)
        src = numbers(4, 5, dtype=dtype, seed=3)
        TABLE.add("scatter_src_out", name, {**into, "index": index, "src": src}, aten.scatter)
        TABLE.add("scatter_value_out", name, {**into, "index": index, "value": 2.0}, aten.scatter)


def _scatter_reduce(
    self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, **how: Any
) -> torch.Tensor:
    return torch.scatter_reduce(
        self, dim, index, src, how["reduce"], include_self=bool(how["include_self"])
    )


for reduce in ("sum", "prod", "mean", "amax", "amin"):
    for include_self in (0, 1):
        for dtype in (*FLOATS, torch.int64, torch.int32):
            TABLE.add(
                "scatter_reduce_two_out",
                f"{reduce}, {short(dtype)}, {'with' if include_self else 'without'} self",
                {
                    "out": torch.empty(3, 5, dtype=dtype),
                    "self": numbers(3, 5, dtype=dtype),
                    "dim": 1,
                    "index": integers(3, 9, low=0, high=4),
                    "src": numbers(3, 10, dtype=dtype, seed=2),
                    "reduce": reduce,
                    "include_self": include_self,
                },
                _scatter_reduce,
                tolerance=3e-2 if dtype is torch.bfloat16 else None,
            )
for reduce in ("sum", "prod", "mean", "amax", "amin"):
    for dtype in (torch.float32, torch.int64):
        for dim, sizes in ((0, (300,)), (1, (3, 300)), (0, (300, 3))):
            target = [12 if axis == dim else n for axis, n in enumerate(sizes)]
            src = numbers(*sizes, dtype=dtype, seed=2)
            TABLE.add(
                "scatter_reduce_two_out",
                f"{reduce}, {short(dtype)}, long rows along {dim} of {len(sizes)}",
                {
                    "out": torch.empty(target, dtype=dtype),
                    "self": numbers(*target, dtype=dtype),
                    "dim": dim,
                    "index": integers(*sizes, low=0, high=11),
                    "src": src.sign() if reduce == "prod" else src,
                    "reduce": reduce,
                    "include_self": dim,
                },
                _scatter_reduce,
                tolerance=1e-4,
            )
TABLE.add(
    "scatter_reduce_two_out",
    "NaN wins",
    {
        "out": torch.empty(3),
        "self": torch.tensor([1.0, torch.nan, 3.0]),
        "dim": 0,
        "index": torch.tensor([0, 1, 2, 2]),
        "src": torch.tensor([torch.nan, 2.0, 4.0, 1.0]),
        "reduce": "amax",
        "include_self": 1,
    },
    _scatter_reduce,
)

for mask in (floats(4, 5) > 0, floats(5) > 0, torch.zeros(4, 5, dtype=torch.bool)):
    name = f"{tuple(mask.shape)}, {int(mask.sum())} true"
    TABLE.add(
        "masked_scatter",
        name,
        {"self": floats(4, 5), "mask": mask, "source": floats(30)},
        aten.masked_scatter,
    )
    TABLE.add("masked_select", name, {"self": floats(4, 5), "mask": mask}, aten.masked_select)
for name, self_ in (
    ("numbers", integers(4, 5)),
    ("floats", floats(3, 2, 4).relu()),
    ("booleans", integers(7, low=0, high=2, dtype=torch.bool)),
    ("nothing", torch.zeros(3, 2)),
    ("no axis", torch.ones(())),
):
    TABLE.add("nonzero", name, {"self": self_}, aten.nonzero)

_WITH_NAN = torch.tensor([0.0, torch.nan, 16.0, torch.inf])
_EDGES = torch.tensor([-1.0, 0.0, 0.0, 1.5, 2.0])
for right in (0, 1):
    for out_int32 in (0, 1):
        values = torch.tensor([[-2.0, 0.0, 1.0], [torch.nan, 2.0, torch.inf]])
        how = {"out_int32": out_int32, "right": right}
        name = f"{'right' if right else 'left'}, {32 if out_int32 else 64} bits"
        TABLE.add(
            "bucketize_Tensor",
            name,
            {"self": values, "boundaries": _EDGES, **how},
            lambda self, boundaries, out_int32, right: torch.bucketize(
                self.contiguous(),
                boundaries.contiguous(),
                out_int32=bool(out_int32),
                right=bool(right),
            ),
        )
        for edges, sought in (
            (_EDGES, values),
            (floats(3, 8).sort(-1).values, floats(3, 4, seed=1)),
            (integers(6).sort().values, integers(4, low=-9, high=9)),
            (torch.tensor([-0.0, 0.5, 1.0, 16.0, torch.nan, torch.nan]), _WITH_NAN),
        ):
            TABLE.add(
                "searchsorted_Tensor",
                f"{name}, {short(edges.dtype)}{list(edges.shape)}",
                {"sorted_sequence": edges, "self": sought, **how, "side": None, "sorter": None},
                lambda sorted_sequence, self, out_int32, right, **_: torch.searchsorted(
                    sorted_sequence.contiguous(),
                    self.contiguous(),
                    out_int32=bool(out_int32),
                    right=bool(right),
                ),
            )

_SELF = floats(4, 5)
TABLE.refuse("index_Tensor", "is not an index", self=_SELF, indices=[floats(3)])
TABLE.refuse("index_Tensor", "more indices than axes", self=_SELF, indices=[_rows(1, of=1)] * 3)
TABLE.refuse("index_Tensor", "does not fit", self=_SELF, indices=[torch.ones(3, dtype=torch.bool)])
TABLE.refuse("index_Tensor", "cannot take", self=_SELF, indices=[_rows(2, of=2), _rows(3, of=2)])
TABLE.refuse(
    "index_put", "differ in dtype", self=_SELF, indices=[_ORDER], values=integers(5), accumulate=0
)
TABLE.refuse(
    "index_put", "cannot take", self=_SELF, indices=[_ORDER], values=floats(4), accumulate=0
)
_INTO = {"out": torch.empty(4, 5), "self": _SELF}
TABLE.refuse(
    "scatter_src_out", "axis 2 is not in", **_INTO, dim=2, index=_rows(1, 1, of=1), src=_SELF
)
TABLE.refuse("scatter_src_out", "does not fit", **_INTO, dim=1, index=_rows(5, 1, of=1), src=_SELF)
TABLE.refuse(
    "scatter_value_out", "nothing to write to along axis 0", out=torch.empty(0, 5),
    self=torch.empty(0, 5), dim=0, index=_rows(2, 5, of=1), value=1.0,
)  # fmt: skip
TABLE.refuse("scatter_value_out", "must be int64", **_INTO, dim=1, index=floats(1, 1), value=1.0)
TABLE.refuse(
    "scatter_reduce_two_out", "reduction 'median' is not known", **_INTO, dim=1,
    index=integers(1, 1, low=0), src=_SELF, reduce="median", include_self=1,
)  # fmt: skip
TABLE.refuse(
    "masked_scatter", "true", self=_SELF, mask=torch.ones(4, 5, dtype=torch.bool), source=floats(19)
)
TABLE.refuse("masked_select", "bool", self=_SELF, mask=floats(4, 5))
TABLE.refuse(
    "bucketize_Tensor", "one axis", self=_SELF, boundaries=floats(2, 2), out_int32=0, right=0
)
_MIXED = floats(3, 8)
for places in (_MIXED.argsort(-1), _MIXED.t().argsort(0).t()):
    TABLE.add(
        "searchsorted_Tensor",
        f"by a sorter of strides {places.stride()}",
        {
            "sorted_sequence": _MIXED, "self": floats(3, 4, seed=1), "out_int32": 0, "right": 0,
            "side": None, "sorter": places,
        },
        lambda sorted_sequence, self, sorter, **_: torch.searchsorted(
            sorted_sequence.contiguous(), self.contiguous(), sorter=sorter.contiguous()
        ),
    )  # fmt: skip
TABLE.refuse(
    "searchsorted_Tensor", "names place 8", sorted_sequence=_MIXED, self=floats(3, 4), out_int32=0,
    right=0, side=None, sorter=torch.full((3, 8), 8),
)  # fmt: skip
TABLE.refuse(
    "searchsorted_Tensor", "does not fit", sorted_sequence=floats(), self=floats(3), out_int32=0,
    right=0, side=None, sorter=torch.tensor(0),
)  # fmt: skip
TABLE.refuse(
    "searchsorted_Tensor", "does not fit", sorted_sequence=floats(3, 4), self=floats(2, 4),
    out_int32=0, right=0, side=None, sorter=None,
)  # fmt: skip

for dtype in (torch.int64, torch.int32, torch.int8, torch.uint8):
    ends = torch.tensor([torch.iinfo(dtype).min, torch.iinfo(dtype).max, 0, 1], dtype=dtype)
    TABLE.add(
        "gcd",
        f"{short(dtype)}, zeros and the ends",
        {"self": ends[:, None], "other": torch.cat([ends, torch.tensor([6, 12], dtype=dtype)])},
        aten.gcd,
    )
    exponents = torch.tensor([0, 1, 2, 3, 7, 63], dtype=dtype)
    if dtype.is_signed:
        exponents = torch.cat([exponents, -exponents])
    bases = torch.cat([ends, torch.tensor([2, 3, 5], dtype=dtype) * (-1 if dtype.is_signed else 1)])
    given = {"self": bases[:, None], "exponent": exponents}
    TABLE.add("pow_Tensor_Tensor", f"{short(dtype)}, the ends", given, aten.pow.Tensor_Tensor)
    of_three = {"self": 3, "exponent": exponents}
    TABLE.add("pow_Scalar", f"{short(dtype)}, of three", of_three, aten.pow.Scalar)
TABLE.refuse("gcd", "integers are wanted", self=floats(2), other=floats(2))
