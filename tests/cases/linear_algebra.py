"""Cases of linear algebra, which the host computes in double precision on every device."""

from __future__ import annotations

import torch
from case import Table, floats, integers

TABLE = Table()
_ONE_RESULT = {"crowded": False}  # of rows that repeat, factors are free

_SIZES = ((5, 5), (2, 3, 4, 4), (6, 4), (4, 6), (1, 1), (2, 0, 0))


def _positive(*sizes: int) -> torch.Tensor:
    a = floats(*sizes)
    return a @ a.mT + torch.eye(sizes[-1])


def _factored(self: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.geqrf(self)


def _product(self: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    return torch.linalg.householder_product(self, factors)


for sizes in _SIZES:
    square = sizes[-1] == sizes[-2]
    matrix = floats(*sizes)
    TABLE.add(
        "lu_factor",
        str(sizes),
        {"self": matrix, "check": 0},
        lambda self, check: torch.linalg.lu_factor_ex(self, check_errors=bool(check)),
        **_ONE_RESULT,
    )
    TABLE.add("qr_factor", str(sizes), {"self": matrix}, _factored, **_ONE_RESULT)
    if sizes[-2] >= sizes[-1]:
        reflectors, factors = torch.geqrf(matrix)
        TABLE.add(
            "reflectors_product",
            str(sizes),
            {"self": reflectors, "factors": factors},
            _product,
            **_ONE_RESULT,
        )
    if not square:
        continue
    TABLE.add(
        "cholesky_factor",
        str(sizes),
        {"self": _positive(*sizes), "check": 1},
        lambda self, check: torch.linalg.cholesky_ex(self, check_errors=bool(check)),
        **_ONE_RESULT,
    )
    for upper in (0, 1):
        for unit in (0, 1):
            TABLE.add(
                "triangle_solved",
                f"{sizes}, upper {upper}, unit {unit}",
                {
                    "self": floats(*sizes) + 4 * torch.eye(sizes[-1]),
                    "other": floats(*sizes[:-1], 3),
                    "upper": upper,
                    "unit": unit,
                },
                lambda self, other, upper, unit: torch.linalg.solve_triangular(
                    self.triu() if upper else self.tril(),
                    other,
                    upper=bool(upper),
                    unitriangular=bool(unit),
                ),
                tolerance=1e-4,
            )
# A factorisation leaves the signs of vectors free; in these there is only one choice.
TABLE.add(
    "symmetric_eigen",
    "a diagonal",
    {"self": torch.diag(torch.tensor([1.0, 2.0, 5.0]))},
    lambda self: (torch.diagonal(self), torch.eye(3)),
    **_ONE_RESULT,
)
TABLE.add(
    "singular_values",
    "a diagonal",
    {"self": torch.diag(torch.tensor([5.0, 2.0, 1.0]))[:, :2]},
    lambda self: (torch.eye(3)[:, :2], torch.diagonal(self), torch.eye(2)),
    **_ONE_RESULT,
)
for pivots, rows in (([3, 3, 3], 3), ([2, 2], 4), ([[1, 2], [2, 2]], 2)):
    TABLE.add(
        "lu_permutation",
        f"{pivots} of {rows}",
        {"pivots": torch.tensor(pivots, dtype=torch.int32), "rows": rows},
        lambda pivots, rows: torch.lu_unpack(
            torch.zeros(*pivots.shape[:-1], rows, pivots.shape[-1]), pivots, unpack_data=False
        )[0].argmax(-2),
    )
TABLE.refuse("lu_permutation", "is not a row of", pivots=integers(2, low=7, high=8).int(), rows=2)
TABLE.refuse("lu_factor", "the matrix is singular: pivot 2", self=torch.ones(3, 3), check=1)
TABLE.refuse("cholesky_factor", "is not positive definite", self=-torch.eye(2), check=1)
TABLE.refuse("cholesky_factor", "must be square", self=floats(2, 3), check=0)
TABLE.refuse(
    "triangle_solved", "do not fit", self=floats(3, 3), other=floats(2, 3), upper=0, unit=0
)
TABLE.refuse("symmetric_eigen", "float32 or float64", self=integers(2, 2))
