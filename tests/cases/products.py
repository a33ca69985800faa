"""Cases of matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from case import FLOATS, Table, floats, integers, numbers, short

if TYPE_CHECKING:
    from collections.abc import Callable

TABLE = Table()
_CPU = ("cpu",)


def _mm(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    return torch.matmul(self, mat2)


def _addmm(self: torch.Tensor, mat1: torch.Tensor, mat2: torch.Tensor, **factors: Any) -> Any:
    return torch.addmm(self, mat1, mat2, **factors)


def _baddbmm(self: torch.Tensor, batch1: torch.Tensor, batch2: torch.Tensor, **factors: Any) -> Any:
    return torch.baddbmm(self, batch1, batch2, **factors)


def _whole(operator: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Torch takes factors of whole numbers as such; the ABI has only doubles."""

    def call(beta: float, alpha: float, **operands: torch.Tensor) -> torch.Tensor:
        return operator(beta=int(beta), alpha=int(alpha), **operands)

    return call


for m, k, n in ((5, 7, 3), (1, 8, 6), (4, 1, 4), (9, 5, 1), (0, 3, 2), (3, 0, 2), (33, 65, 17)):
    TABLE.add(
        "mm_out",
        f"{m} x {k} x {n}",
        {"out": torch.empty(m, n), "self": floats(m, k), "mat2": floats(k, n, seed=1)},
        _mm,
    )
# Tiles that are full, that end within the matrix and that are outside it; sums of several blocks;
# operands whose rows or columns are neighbours in memory.
for dtype in FLOATS:
    for name, left, right in (
        ("tiles", floats(70, 40), floats(40, 90, seed=1)),
        ("whole tiles", floats(64, 32), floats(32, 128, seed=1)),
        ("one less than tiles", floats(63, 33), floats(33, 127, seed=1)),
        ("turned, one more", floats(33, 65).t(), floats(129, 33, seed=1).t()),
        ("neither in pieces", floats(70, 80)[:, ::2], floats(40, 180, seed=1)[:, ::2]),
        ("not finite", floats(65, 17).fill_diagonal_(torch.inf), floats(17, 66)),
        ("parts of large tiles", floats(70, 2100).div(46), floats(2100, 66, seed=1)),
        ("sums in blocks", floats(40, 1100).div(33), floats(1100, 36, seed=1)),
        ("a row by rows", floats(1, 300).div(17), floats(300, 70, seed=1)),
        ("a row by columns", floats(1, 300).div(17), floats(70, 300, seed=1).t()),
        ("rows by a column", floats(70, 300).div(17), floats(300, 1, seed=1)),
        ("columns by a column", floats(300, 70).t().div(17), floats(300, 1, seed=1)),
    ):
        operands = {"self": left.to(dtype), "mat2": right.to(dtype)}
        out = torch.empty(len(left), right.shape[1], dtype=dtype)
        TABLE.add("mm_out", f"{short(dtype)}, {name}", {"out": out, **operands}, _mm)
for m in (1, 5):
    TABLE.add(
        "baddbmm_out",
        f"{m} rows, a column added",
        {
            "out": torch.empty(3, m, 50),
            "self": floats(m, 1),
            "batch1": floats(3, m, 40),
            "batch2": floats(3, 50, 40, seed=1).mT,
            "beta": 0.5,
            "alpha": 2.0,
        },
        _baddbmm,
    )
_LONG = 32800
for dtype in FLOATS:
    TABLE.add(
        "addmm_out",
        f"{short(dtype)}, long sums",
        {
            "out": torch.empty(16, 17, dtype=dtype),
            "self": floats(17, dtype=dtype),
            "mat1": floats(16, _LONG).div(_LONG**0.5).to(dtype),
            "mat2": floats(_LONG, 17, dtype=dtype, seed=1),
            "beta": 1.0,
            "alpha": 1.0,
        },
        lambda self, mat1, mat2, **_: (self.double() + mat1.double() @ mat2.double()).to(
            self.dtype
        ),
    )
_TWO = {"self": floats(2, 65, 1050).div(33), "mat2": floats(2, 66, 1050, seed=1).mT}
TABLE.add("bmm_out", "tiles of two", {"out": torch.empty(2, 65, 66), **_TWO}, _mm)
TABLE.add(
    "bmm_out",
    "one pair of matrices for all",
    {
        "out": torch.empty(3, 4, 2),
        "self": floats(1, 4, 5).expand(3, 4, 5),
        "mat2": floats(1, 5, 2).expand(3, 5, 2),
    },
    _mm,
)
for name, self_ in (
    ("bias of a row", floats(3)),
    ("bias of one row", floats(1, 3)),
    ("bias of a column", floats(5, 1)),
    ("whole bias", floats(5, 3)),
    ("one number", floats()),
    ("repeated row", floats(3).expand(5, 3)),
):
    for beta, alpha in ((1.0, 1.0), (0.5, -2.0)):
        TABLE.add(
            "addmm_out",
            f"{name}, beta {beta}, alpha {alpha}",
            {
                "out": torch.empty(5, 3),
                "self": self_,
                "mat1": floats(5, 7),
                "mat2": floats(7, 3, seed=1),
                "beta": beta,
                "alpha": alpha,
            },
            _addmm,
        )
TABLE.add(
    "addmm_out",
    "NaN times beta of zero",
    {
        "out": torch.empty(2, 3),
        "self": torch.full((3,), torch.nan),
        "mat1": floats(2, 4),
        "mat2": floats(4, 3),
        "beta": 0.0,
        "alpha": 1.0,
    },
    _addmm,
)
for dtype in FLOATS[1:]:
    TABLE.add(
        "addmm_out",
        short(dtype),
        {
            "out": torch.empty(5, 3, dtype=dtype),
            "self": floats(3, dtype=dtype),
            "mat1": floats(5, 7, dtype=dtype),
            "mat2": floats(7, 3, dtype=dtype, seed=1),
            "beta": 1.0,
            "alpha": 1.0,
        },
        _addmm,
    )

for batch, m, k, n in ((3, 4, 5, 6), (1, 2, 3, 4), (0, 2, 3, 4), (2, 1, 9, 1)):
    TABLE.add(
        "bmm_out",
        f"{batch} of {m} x {k} x {n}",
        {
            "out": torch.empty(batch, m, n),
            "self": floats(batch, m, k),
            "mat2": floats(batch, k, n, seed=1),
        },
        _mm,
    )
TABLE.add(
    "bmm_out",
    "one matrix for all",
    {"out": torch.empty(3, 4, 6), "self": floats(1, 4, 5).expand(3, 4, 5), "mat2": floats(3, 5, 6)},
    _mm,
)
for name, left in (
    ("matrices that overlap", floats(11).unfold(0, 5, 1).unfold(0, 4, 1).mT),
    ("batches that overlap", floats(6, 5).unfold(0, 4, 1).mT),
    ("batches between rows", floats(4, 3, 5).transpose(0, 1)),
):
    TABLE.add(
        "bmm_out",
        name,
        {"out": torch.empty(len(left), 4, 6), "self": left, "mat2": floats(len(left), 5, 6)},
        _mm,
    )
TABLE.add(
    "bmm_out",
    "bfloat16",
    {
        "out": torch.empty(2, 4, 6, dtype=torch.bfloat16),
        "self": floats(2, 4, 5, dtype=torch.bfloat16),
        "mat2": floats(2, 5, 6, dtype=torch.bfloat16),
    },
    _mm,
)
for name, self_ in (
    ("whole sum", floats(3, 5, 6)),
    ("a row", floats(6)),
    ("a row of one matrix", floats(1, 1, 6)),
    ("a number a matrix", floats(3, 1, 1)),
):
    TABLE.add(
        "baddbmm_out",
        name,
        {
            "out": torch.empty(3, 5, 6),
            "self": self_,
            "batch1": floats(3, 5, 4),
            "batch2": floats(3, 4, 6, seed=1),
            "beta": 2.0,
            "alpha": 0.5,
        },
        _baddbmm,
    )

for dtype in (torch.int64, torch.int32, torch.uint8):
    TABLE.add(
        "mm_out",
        short(dtype),
        {
            "out": torch.empty(4, 3, dtype=dtype),
            "self": numbers(4, 9, dtype=dtype),
            "mat2": numbers(9, 3, dtype=dtype, seed=1),
        },
        _mm,
    )
TABLE.add(
    "bmm_out",
    "int64, beyond what a float holds",
    {
        "out": torch.empty(2, 4, 3, dtype=torch.int64),
        "self": integers(2, 4, 9, high=2**40),
        "mat2": integers(2, 9, 3, high=2**20),
    },
    _mm,
)
TABLE.add(
    "addmm_out",
    "int64",
    {
        "out": torch.empty(4, 3, dtype=torch.int64),
        "self": integers(3),
        "mat1": integers(4, 9),
        "mat2": integers(9, 3),
        "beta": 2.0,
        "alpha": -3.0,
    },
    _whole(torch.ops.aten.addmm),
)
TABLE.add(
    "addmm_out",
    "int64, factors beyond what a float holds",
    {
        "out": torch.empty(4, 3, dtype=torch.int64),
        "self": integers(3),
        "mat1": integers(4, 9),
        "mat2": integers(9, 3),
        "beta": 2.0**53 - 1,
        "alpha": 16777217.0,
    },
    _whole(torch.ops.aten.addmm),
)
TABLE.add(
    "baddbmm_out",
    "int64, factors beyond what a float holds",
    {
        "out": torch.empty(2, 4, 3, dtype=torch.int64),
        "self": integers(3),
        "batch1": integers(2, 4, 9),
        "batch2": integers(2, 9, 3),
        "beta": -16777219.0,
        "alpha": 16777217.0,
    },
    _whole(torch.ops.aten.baddbmm),
)
_SUMS: tuple[tuple[str, Any, list[int]], ...] = (
    ("addmm_out", _addmm, []),
    ("baddbmm_out", _baddbmm, [2]),
)
for operator, eager, batches in _SUMS:
    names = ("batch1", "batch2") if batches else ("mat1", "mat2")
    for dtype in (torch.float64, torch.float32):
        TABLE.add(
            operator,
            f"{short(dtype)}, factors that no float holds",
            {
                "out": torch.empty(*batches, 4, 3, dtype=dtype),
                "self": floats(4, 3, dtype=dtype),
                names[0]: floats(*batches, 4, 5, dtype=dtype),
                names[1]: floats(*batches, 5, 3, dtype=dtype, seed=1),
                "beta": 0.7,
                "alpha": 0.1,
            },
            eager,
        )
    for dtype in (*FLOATS, torch.float64):
        TABLE.add(
            operator,
            f"{short(dtype)}, sums of nothing",
            {
                "out": torch.empty(*batches, 4, 3, dtype=dtype),
                "self": floats(3, dtype=dtype),
                names[0]: floats(*batches, 4, 0, dtype=dtype),
                names[1]: floats(*batches, 0, 3, dtype=dtype),
                "beta": 2.0,
                "alpha": torch.inf,
            },
            eager,
        )


def _linear(**given: Any) -> torch.Tensor:
    return F.linear(given["X"], given["W"], given["B"])


_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": F.gelu,
    "swish": F.silu,
    "sigmoid": torch.sigmoid,
}


def _activated_linear(**given: Any) -> torch.Tensor:
    return _ACTIVATIONS[given["attr"]](_linear(**given))


for activation in _ACTIVATIONS:
    for lead in ((), (7,), (2, 3)):
        for bias in (None, floats(5)):
            TABLE.add(
                "_linear_pointwise",
                f"{activation} over {lead}{' and a bias' if bias is not None else ''}",
                {
                    "X": floats(*lead, 9),
                    "W": floats(5, 9),
                    "B": bias,
                    "attr": activation,
                    "scalars": [],
                    "algorithm": "none" if activation == "gelu" else "",
                },
                _activated_linear,
                targets=_CPU,
            )


def _packed(
    n: int, k: int, group: int, dtype: torch.dtype, m: int, seed: int = 0
) -> dict[str, Any]:
    """Operands of torchao's linear layer of four bits; two numbers share a byte."""
    return {
        "A": floats(m, k, dtype=dtype, seed=seed),
        "B": integers(n, k // 2, low=0, high=256, dtype=torch.uint8, seed=seed),
        "group_size": group,
        "S": floats(n, k // group, seed=1).abs().div(16).to(dtype),
        "Z": floats(n, k // group, seed=2).div(2).to(dtype),
    }


def _packed_linear(**given: Any) -> torch.Tensor:
    """By the format's definition, in float64, number by number of a row."""
    packed, group = given["B"], given["group_size"]
    numbers = torch.empty(len(packed), 2 * packed.shape[1], dtype=torch.float64)
    numbers[:, 0::2], numbers[:, 1::2] = packed % 16, packed // 16
    grouped = numbers.unflatten(1, (-1, group)) if numbers.numel() else numbers[..., None]
    wide = grouped * given["S"].double()[..., None] + given["Z"].double()[..., None]
    x = given["A"]
    return (x.double() @ wide.reshape(numbers.shape).T).to(x.dtype)


_FOUR = "_linear_fp_act_4bit_weight"
for dtype in FLOATS:
    for group in (32, 64, 128, 256):
        for m, n in ((1, 7), (3, 33)) if group < 256 else ((40, 36),):
            TABLE.add(
                _FOUR,
                f"{short(dtype)}, {m} x {2 * group} x {n}, groups of {group}",
                _packed(n, 2 * group, group, dtype, m),
                _packed_linear,
                tolerance=1e-4,
            )
for m, n, k in ((0, 5, 32), (5, 0, 32), (2, 3, 0), (1, 1, 32)):
    TABLE.add(_FOUR, f"{m} x {k} x {n}", _packed(n, k, 32, torch.float32, m), _packed_linear)
_GIVEN = _packed(5, 64, 32, torch.float32, 2)
for fact, changed in (
    ("a group of 48 numbers is not one of", {"group_size": 48}),
    ("shapes do not fit", {"group_size": 64}),
    ("shapes do not fit", {"A": floats(2, 96)}),
    ("shapes do not fit", {"Z": floats(4, 2)}),
    ("dtypes differ", {"S": floats(5, 2).half()}),
    ("dtypes differ", {"B": integers(5, 32, dtype=torch.int8)}),
    ("must have 2 axes", {"A": floats(1, 2, 64)}),
):
    TABLE.refuse(_FOUR, fact, **(_GIVEN | changed))

_A, _B, _OUT = floats(2, 4), floats(4, 3), torch.empty(2, 3)
for alpha in (2.0**63, torch.inf, torch.nan):
    TABLE.refuse(
        "addmm_out", "is out of range", out=integers(2, 3), self=integers(3),
        mat1=integers(2, 4), mat2=integers(4, 3), beta=1.0, alpha=alpha,
    )  # fmt: skip
TABLE.refuse("mm_out", "shapes do not fit", out=_OUT, self=_A, mat2=floats(5, 3))
TABLE.refuse("mm_out", "shapes do not fit", out=torch.empty(3, 3), self=_A, mat2=_B)
TABLE.refuse("mm_out", "dtypes differ", out=_OUT, self=_A, mat2=_B.half())
TABLE.refuse("mm_out", "must have 2 axes", out=_OUT, self=floats(2, 4, 1), mat2=_B)
TABLE.refuse("bmm_out", "must have 3 axes", out=_OUT, self=_A, mat2=_B)
TABLE.refuse(
    "addmm_out", "float32", out=_OUT, self=floats(4), mat1=_A, mat2=_B, beta=1.0, alpha=1.0
)
