"""Linear algebra by the runtimes' factorisations (`runtime/common/linear_algebra.h`).

Each function computes one call, as PyTorch's documentation of `torch.linalg` defines it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._refs.linalg import vector_norm
from torch.fx import Node

from transforms.graph.editor import fake_value
from transforms.graph.schemas import as_torch_does, bound_arguments, declare

_MATRIX = 2

aten = torch.ops.aten
ours = torch.ops.menagerie
_TERMS = 18  # of the series; the rest is below float64's precision if the norm is at most one
_HALVINGS = 24
_BY_SINGULAR_VALUES = (2, -2, "nuc")


def _smaller(a: Tensor) -> int:
    return min(a.shape[-2:])


def _order_of_rows(pivots: Tensor, rows: int) -> Tensor:
    none = pivots.new_zeros((*pivots.shape[:-1], rows, pivots.shape[-1]), dtype=torch.float32)
    exchange = torch.lu_unpack(none, pivots, unpack_data=False)[0]
    return exchange.cumsum(-2).eq(0).sum(-2)  # zeros above the one; argmax fails if empty


declare(
    "cholesky_factor(Tensor self, bool check) -> (Tensor, Tensor)",
    lambda a, check: torch.linalg.cholesky_ex(a, check_errors=check),
)
declare(
    "lu_factor(Tensor self, bool check) -> (Tensor, Tensor, Tensor)",
    lambda a, check: torch.linalg.lu_factor_ex(a, check_errors=check),
)
declare(
    "lu_permutation(Tensor pivots, SymInt rows) -> Tensor",
    _order_of_rows,
    lambda pivots, rows: pivots.new_empty((*pivots.shape[:-1], rows), dtype=torch.int64),
)
declare(
    "triangle_solved(Tensor self, Tensor other, bool upper, bool unit) -> Tensor",
    lambda a, b, upper, unit: torch.linalg.solve_triangular(a, b, upper=upper, unitriangular=unit),
    lambda _a, b, *_: b.new_empty(b.shape),
)
declare(
    "qr_factor(Tensor self) -> (Tensor, Tensor)",
    torch.geqrf,
    lambda a: (a.new_empty(a.shape), a.new_empty((*a.shape[:-2], _smaller(a)))),
)
declare(
    "reflectors_product(Tensor self, Tensor factors) -> Tensor", torch.linalg.householder_product
)
declare("symmetric_eigen(Tensor self) -> (Tensor, Tensor)", torch.linalg.eigh)
declare(
    "singular_values(Tensor self) -> (Tensor, Tensor, Tensor)",
    lambda a: torch.linalg.svd(a, full_matrices=False),
)


def in_equal_batches(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Broadcast the batches of both matrices, as the runtimes' kernels require."""
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # type: ignore[no-untyped-call]
    return a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])


def _triangle(a: Tensor, b: Tensor, *, upper: bool, unit: bool = False) -> Tensor:
    """Return the x with a x = b; the batches of both are broadcast."""
    found: Tensor = ours.triangle_solved(*in_equal_batches(a, b), upper, unit)
    return found


def _solve_triangular(
    a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    if left:
        return _triangle(a, b, upper=upper, unit=unitriangular)
    return _triangle(a.mT, b.mT, upper=not upper, unit=unitriangular).mT


def _triangular_solve(
    self: Tensor, a: Tensor, upper: bool = True, transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    matrix = a.mT if transpose else a
    found = _triangle(matrix, self, upper=upper != transpose, unit=unitriangular)
    return found, a.expand(*found.shape[:-2], *a.shape[-2:]).clone()


def _or_raise(solve: Callable[..., Any], part: int | slice = 0) -> Callable[..., Any]:
    return lambda *given, **how: solve(*given, **how, check_errors=True)[part]


def _cholesky_ex(
    self: Tensor, upper: bool = False, check_errors: bool = False
) -> tuple[Tensor, Tensor]:
    factor, info = ours.cholesky_factor(self.mT if upper else self, check_errors)
    return (factor.mT if upper else factor), info


def _cholesky_solve(self: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    lower = factor.mT if upper else factor
    return _triangle(lower.mT, _triangle(lower, self, upper=False), upper=True)


def _cholesky_inverse(self: Tensor, upper: bool = False) -> Tensor:
    solvable = (self.diagonal(0, -2, -1) != 0).all()
    aten._assert_async.msg(solvable, "cholesky_inverse: a diagonal element is zero")
    return _cholesky_solve(_identity(self), self, upper)


def _identity(a: Tensor) -> Tensor:
    return torch.eye(a.shape[-1], dtype=a.dtype).expand(a.shape)


def _lu_factor_ex(
    self: Tensor, *, pivot: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    if not pivot:
        raise NotImplementedError("LU without exchanging rows")
    factors: tuple[Tensor, Tensor, Tensor] = ours.lu_factor(self, check_errors)
    return factors


def _parts(lu: Tensor) -> tuple[Tensor, Tensor]:
    """Split into L [rows, r], with ones on its diagonal, and U [r, columns]."""
    r = _smaller(lu)
    rows, columns = torch.arange(lu.shape[-2]), torch.arange(r)
    diagonal = (rows[:, None] == columns).to(lu.dtype)
    return lu[..., :r].tril(-1) + diagonal, lu[..., :r, :].triu()


def _permutation(pivots: Tensor, rows: int, dtype: torch.dtype) -> Tensor:
    """Return P of A = P L U: column i has its one at the row of A that row i of L U gives."""
    order: Tensor = ours.lu_permutation(pivots, rows)
    return (order[..., None, :] == torch.arange(rows)[:, None]).to(dtype)


def _lu_unpack(
    lu: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    none = lu.new_empty(0)
    exchange = _permutation(pivots, lu.shape[-2], lu.dtype) if unpack_pivots else none
    return (exchange, *(_parts(lu) if unpack_data else (none, none)))


def _lu_solve(
    lu: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    if not left:
        return _lu_solve(lu, pivots, b.mT, adjoint=not adjoint).mT
    exchange = _permutation(pivots, lu.shape[-2], lu.dtype)
    if adjoint:
        inner = _triangle(lu.mT, b, upper=False)
        found: Tensor = exchange @ _triangle(lu.mT, inner, upper=True, unit=True)
        return found
    return _triangle(lu, _triangle(lu, exchange.mT @ b, upper=False, unit=True), upper=True)


def _solve_ex(
    a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    factors, pivots, info = ours.lu_factor(a, check_errors)
    vector = b.dim() == 1 or (b.dim() == a.dim() - 1 and b.shape == a.shape[:-1])
    columns = b[..., None] if vector else b
    found = _lu_solve(factors, pivots, columns, left=left or vector)
    return found[..., 0] if vector else found, factors, pivots, info


def _inv_ex(a: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    found, _, _, info = _solve_ex(a, _identity(a), check_errors=check_errors)
    return found, info


_inv: Callable[..., Tensor] = _or_raise(_inv_ex)


def _tensorinv(a: Tensor, ind: int = 2) -> Tensor:
    """Return the inverse of the matrix whose columns are indexed by the first `ind` axes."""
    sizes = (*a.shape[ind:], *a.shape[:ind])
    order = math.prod(a.shape[ind:])
    return _inv(a.reshape(order, order)).reshape(sizes)


def _diagonal_and_sign(a: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the diagonal of U and the sign of P, for A = P L U, then the factors and pivots."""
    factors, pivots, _ = ours.lu_factor(a, False)
    exchanges = (pivots != torch.arange(1, a.shape[-1] + 1)).sum(-1)
    sign = (1 - 2 * (exchanges % 2)).to(a.dtype)
    return factors.diagonal(dim1=-2, dim2=-1), sign, factors, pivots


def _slogdet(a: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    diagonal, sign, factors, pivots = _diagonal_and_sign(a)
    return diagonal.sign().prod(-1) * sign, diagonal.abs().log().sum(-1), factors, pivots


def _det(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    diagonal, sign, factors, pivots = _diagonal_and_sign(a)
    return diagonal.prod(-1) * sign, factors, pivots


def _qr(a: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    rows = a.shape[-2]
    reflectors, factors = ours.qr_factor(a)
    r = reflectors.triu() if mode == "complete" else reflectors[..., : _smaller(a), :].triu()
    if mode == "r":
        return a.new_empty(0), r
    width = rows if mode == "complete" else _smaller(a)
    return ours.reflectors_product(_as_wide(reflectors, width), factors), r


def _as_wide(reflectors: Tensor, width: int) -> Tensor:
    """Cut off columns, or append columns of zeros, to get `width` columns."""
    missing = width - reflectors.shape[-1]
    if missing <= 0:
        return reflectors[..., :width]
    return torch.nn.functional.pad(reflectors, (0, missing))


def _ormqr(
    self: Tensor, factors: Tensor, other: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    q = ours.reflectors_product(_as_wide(self, self.shape[-2]), factors)
    q = q.mT if transpose else q
    product: Tensor = q @ other if left else other @ q
    return product


def _eigh(a: Tensor, uplo: str = "L", compute_v: bool = True) -> tuple[Tensor, Tensor]:
    part, rest = (a.triu(), a.triu(1)) if uplo.upper() == "U" else (a.tril(), a.tril(-1))
    values, vectors = ours.symmetric_eigen(part + rest.mT)
    return values, vectors if compute_v else a.new_empty(0)


def _svd(
    a: Tensor, full_matrices: bool = False, compute_uv: bool = True, **_: Any
) -> tuple[Tensor, Tensor, Tensor]:
    u, values, vh = ours.singular_values(a)
    if not compute_uv:
        return a.new_empty(0), values, a.new_empty(0)
    if full_matrices:
        u, vh = _completed(u), _completed(vh.mT).mT
    return u, values, vh


def _completed(columns: Tensor) -> Tensor:
    """Return a square orthogonal matrix that begins with the given columns."""
    q, r = _qr(columns, "complete")
    sign = r.diagonal(dim1=-2, dim2=-1).sign()
    rest = q.shape[-1] - sign.shape[-1]
    return q * torch.nn.functional.pad(sign, (0, rest), value=1.0)[..., None, :]


def _matrix_exp(a: Tensor) -> Tensor:
    """Return the series of a matrix halved until it is small, then squared as often."""
    norm = torch.nn.functional.pad(a.abs().sum(-2), (0, 1)).amax(-1)[..., None, None]
    halved = torch.where(norm > 1, norm.log2().ceil(), 0.0).clamp(max=_HALVINGS)
    small = a / torch.exp2(halved)
    result = term = _identity(a)
    for order in range(1, _TERMS + 1):
        term = term @ small / order
        result = result + term
    for step in range(_HALVINGS):
        result = torch.where(halved > step, result @ result, result)
    return result


# PyTorch decomposes these into operators of the table below, where needed. Its function is called
# as `OpOverload.decompose` would call it; that would find this table during a retrace.
_COMPOSITE = (
    aten.linalg_svd.default, aten.svd.default, aten.linalg_svdvals.default,
    aten.linalg_pinv.default, aten.linalg_pinv.atol_rtol_float, aten.linalg_pinv.rcond_tensor,
    aten.linalg_pinv.atol_rtol_tensor, aten.pinverse.default, aten.linalg_cond.default,
    aten.linalg_cond.p_str,
    aten.linalg_matrix_rank.default, aten.linalg_matrix_rank.tol_tensor,
    aten.linalg_matrix_rank.atol_rtol_tensor, aten.linalg_matrix_rank.atol_rtol_float,
    aten.linalg_matrix_norm.default, aten.linalg_matrix_norm.str_ord, aten.linalg_norm.default,
    aten.linalg_norm.ord_str, aten.nuclear_norm.default, aten.nuclear_norm.dim,
    aten.logdet.default, aten.linalg_tensorsolve.default, aten.qr.default,
    aten._lu_with_info.default, aten.lu_solve.default, aten.linalg_det.default, aten.det.default,
    aten.linalg_slogdet.default, aten.slogdet.default, aten.linalg_matrix_power.default,
    aten.matrix_power.default, aten.matrix_exp.default, aten.linalg_eigh.default,
    aten.linalg_eigvalsh.default, aten.orgqr.default, aten.linalg_solve_ex.default,
)  # fmt: skip


def _may_be_one(self: Any, ord: float, dim: Any, **_: Any) -> Any:  # noqa: A002 - torch's name
    """Return the number of elements that a norm covers if it is dynamic; else 0."""
    shape = (fake_value(self) if isinstance(self, Node) else self).shape or (1,)
    count = math.prod(shape[axis] for axis in dim or range(len(shape)))
    return 0 if isinstance(count, int) or ord == 0 else count


def _vector_norm(self: Tensor, ord: float = 2, dim: Any = None, *how: bool, **to: Any) -> Any:  # noqa: A002
    """Return one number's magnitude directly, as eager does: its square may over- or underflow."""
    count = _may_be_one(self, ord, dim)
    if isinstance(count, int):
        return NotImplemented
    norm = vector_norm(self, ord, dim, *how, **to)
    one = vector_norm(self, torch.inf, dim, *how, **to)
    return torch.where(self.new_full((), count, dtype=torch.int64) == 1, one, norm)


def needs_factors(node: Node) -> bool:
    """Return whether a call in the table must be decomposed; few norms must."""
    given = bound_arguments(node)
    if node.target in _OF_NORMS:
        shapes = [fake_value(given[name]).shape for name in ("x1", "x2")]
        return not all(isinstance(shape[given.get("dim", -1)], int) for shape in shapes)
    if node.target is aten.norm.ScalarOpt_dim:
        return not isinstance(_may_be_one(given["self"], given["p"], given["dim"]), int)
    if "ord" not in given:
        return True
    if node.target is aten.linalg_vector_norm.default:
        return not isinstance(_may_be_one(**given), int)
    dim, axes = given["dim"], fake_value(given["self"]).dim()
    matrices = axes == _MATRIX if dim is None else len(dim) == _MATRIX
    return matrices and given["ord"] in _BY_SINGULAR_VALUES


_OF_NORMS = (aten.cosine_similarity.default, aten.pairwise_distance.default)

LINEAR_ALGEBRA: dict[OpOverload, Callable[..., Any]] = {
    **{operator: as_torch_does(operator) for operator in (*_COMPOSITE, *_OF_NORMS)},
    aten.norm.ScalarOpt_dim: lambda self, p, dim, keepdim=False: torch.linalg.vector_norm(
        self, 2 if p is None else p, dim, keepdim
    ),
    aten.linalg_vector_norm.default: _vector_norm,
    aten.cholesky.default: _or_raise(_cholesky_ex),
    aten.linalg_cholesky.default: _or_raise(_cholesky_ex),
    aten.linalg_cholesky_ex.default: _cholesky_ex,
    aten.cholesky_solve.default: _cholesky_solve,
    aten.cholesky_inverse.default: _cholesky_inverse,
    aten.linalg_solve_triangular.default: _solve_triangular,
    aten.triangular_solve.default: _triangular_solve,
    aten.linalg_lu_factor.default: _or_raise(_lu_factor_ex, slice(2)),
    aten.linalg_lu_factor_ex.default: _lu_factor_ex,
    aten.linalg_lu.default: lambda a, *, pivot=True: _lu_unpack(*_lu_factor_ex(a, pivot=pivot)[:2]),
    aten.lu_unpack.default: _lu_unpack,
    aten.linalg_lu_solve.default: _lu_solve,
    aten.linalg_solve.default: _or_raise(_solve_ex),
    aten._linalg_solve_ex.default: _solve_ex,
    aten.linalg_inv.default: _inv,
    aten.inverse.default: _inv,
    aten.linalg_inv_ex.default: _inv_ex,
    aten.linalg_tensorinv.default: _tensorinv,
    aten._linalg_det.default: _det,
    aten._linalg_slogdet.default: _slogdet,
    aten.geqrf.default: lambda a: tuple(ours.qr_factor(a)),
    aten.linalg_qr.default: _qr,
    aten.linalg_householder_product.default: ours.reflectors_product.default,
    aten.ormqr.default: _ormqr,
    aten._linalg_eigh.default: _eigh,
    aten._linalg_svd.default: _svd,
    aten.linalg_matrix_exp.default: _matrix_exp,
}
