"""Linear algebra converts: factorisations by the runtimes, the rest written out with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import linalg, nn

from menagerie import Session
from menagerie.errors import MenagerieError
from tests.pieces import assert_as_eager
from transforms import convert, run_passes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_NOISE = torch.Generator().manual_seed(3)
_A = torch.randn(2, 5, 5, generator=_NOISE)
_P = _A @ _A.mT + torch.eye(5)  # positive definite
_B = torch.randn(2, 5, 3, generator=_NOISE)
_CLOSE = {"rtol": 1e-4, "atol": 1e-4}

Results = tuple[torch.Tensor, ...]


def _cholesky(p: torch.Tensor, b: torch.Tensor) -> Results:
    lower, upper = linalg.cholesky(p), linalg.cholesky(p, upper=True)
    return (
        lower, upper, torch.cholesky(p, upper=True), linalg.cholesky_ex(p)[0],
        torch.cholesky_solve(b, lower), torch.cholesky_solve(b, upper, upper=True),
        torch.cholesky_inverse(lower),
    )  # fmt: skip


def _triangles(p: torch.Tensor, b: torch.Tensor) -> Results:
    low = p.tril()
    return (
        linalg.solve_triangular(p.triu(), b, upper=True),
        linalg.solve_triangular(low, b[0], upper=False),
        linalg.solve_triangular(low, b.mT, upper=False, left=False),
        linalg.solve_triangular(low, b, upper=False, unitriangular=True),
        torch.triangular_solve(b, p)[0],
        torch.triangular_solve(b, p, upper=False, transpose=True)[0],
    )


def _lu(p: torch.Tensor, b: torch.Tensor) -> Results:
    factors = linalg.lu_factor(p)
    return (
        *factors, *linalg.lu(p), *linalg.lu(b), *linalg.lu(b.mT),
        *torch.lu_unpack(*linalg.lu_factor(b)), linalg.lu_solve(*factors, b),
        linalg.lu_solve(*factors, b, adjoint=True), linalg.lu_solve(*factors, b.mT, left=False),
    )  # fmt: skip


def _solutions(p: torch.Tensor, b: torch.Tensor) -> Results:
    return (
        linalg.solve(p, b), linalg.solve(p, b[..., 0]), linalg.solve(p[0], b[0, :, 0]),
        linalg.solve(p, b.mT, left=False), linalg.inv(p), linalg.inv_ex(p)[0], torch.inverse(p),
        linalg.tensorinv(p[0], ind=1), linalg.matrix_power(p, -2), linalg.matrix_power(p, 3),
    )  # fmt: skip


def _determinants(p: torch.Tensor, b: torch.Tensor) -> Results:
    return (linalg.det(p), torch.det(p - 2), *linalg.slogdet(p - 2), torch.logdet(p))


def _qr(p: torch.Tensor, b: torch.Tensor) -> Results:
    reflectors = torch.geqrf(b)
    return (
        *linalg.qr(p), *linalg.qr(b), *linalg.qr(b.mT), *linalg.qr(b, "complete"),
        linalg.qr(b, "r")[1], *reflectors, linalg.householder_product(*reflectors),
        torch.ormqr(*reflectors, b), torch.ormqr(*reflectors, b.mT, left=False, transpose=True),
    )  # fmt: skip


def _eigenvalues(p: torch.Tensor, b: torch.Tensor) -> Results:
    values, vectors = linalg.eigh(p)
    rebuilt = vectors @ (values[..., None] * vectors.mT)
    return (linalg.eigvalsh(p), linalg.eigvalsh(p - 3, UPLO="U"), rebuilt)


def _singular_values(p: torch.Tensor, b: torch.Tensor) -> Results:
    u, values, vh = linalg.svd(b)
    return (
        linalg.svdvals(b), linalg.svdvals(b.mT), linalg.svdvals(p - p[:1]), u @ u.mT,
        (u[..., :3] * values[..., None, :]) @ vh, linalg.pinv(b), linalg.pinv(p, hermitian=True),
        linalg.pinv(b, rtol=0.5), torch.pinverse(b[0]), linalg.cond(p), linalg.matrix_rank(p),
        linalg.matrix_norm(p, 2), linalg.matrix_norm(p, -2), linalg.matrix_norm(b, "nuc"),
    )  # fmt: skip


def _exponentials(p: torch.Tensor, b: torch.Tensor) -> Results:
    return torch.matrix_exp(p / 3), torch.matrix_exp(p * 1e-3), torch.matrix_exp(-p)


# Some of what is tried is deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:torch.*deprecated:UserWarning")

FAMILIES: list[Callable[[torch.Tensor, torch.Tensor], Results]] = [
    _cholesky, _triangles, _lu, _solutions, _determinants, _qr, _eigenvalues, _singular_values,
    _exponentials,
]  # fmt: skip


class _Calls(nn.Module):
    def __init__(self, *functions: Callable[[torch.Tensor, torch.Tensor], Results]) -> None:
        super().__init__()
        self._functions = functions

    def forward(self, p: torch.Tensor, b: torch.Tensor) -> Results:
        return tuple(result for function in self._functions for result in function(p, b))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_what_is_written_out_computes_as_eager_does(family: Any) -> None:
    """Tall, wide and square matrices, one and several; each without the operator itself."""
    program = torch.export.export(_Calls(family), (_P, _B), strict=False)
    rewritten, log = run_passes(program.run_decompositions({}), ["decompose_rare_operators"])
    assert log.records[0].changes, "no operator was met"
    torch.testing.assert_close(rewritten.module()(_P, _B), family(_P, _B), rtol=1e-3, atol=1e-4)


def test_matrices_without_rows_have_solutions_without_any() -> None:
    """As in eager, which gives an empty result; no permutation of nothing is looked up."""
    nothing = (torch.empty(2, 0, 0), torch.empty(2, 0, 3))
    solved = _Calls(lambda p, b: (torch.lu_solve(b, *linalg.lu_factor(p)),))
    program = torch.export.export(solved, nothing, strict=False).run_decompositions({})
    rewritten, _ = run_passes(program, ["decompose_rare_operators"])
    assert rewritten.module()(*nothing)[0].shape == (2, 0, 3)


# What runtimes have kernels for always; with all that is written out by these, in the sweep.
_FACTORISATIONS = (_cholesky, _triangles, _lu, _eigenvalues)


@pytest.mark.parametrize(
    ("families", "target"),
    [
        pytest.param(_FACTORISATIONS, "cpu", id="factorisations-cpu"),
        pytest.param(FAMILIES, "cpu", id="all-cpu", marks=pytest.mark.sweep),
        pytest.param(FAMILIES, "metal", id="all-metal", marks=pytest.mark.sweep),
    ],
)
def test_linear_algebra_is_proven(families: Any, target: str, tmp_path: Path) -> None:
    """Through the front door, all families in one program."""
    convert(_Calls(*families), (_P, _B), target=target, out=tmp_path / "out", measure_seconds=0)


def test_a_singular_matrix_is_an_error_as_in_eager(tmp_path: Path) -> None:
    """An inverse that does not exist is never a tensor of infinities."""
    inverse = _Calls(lambda p, b: (linalg.inv(p) @ b,))
    convert(inverse, (_P, _B), target="cpu", out=tmp_path / "out", measure_seconds=0)
    with Session(tmp_path / "out") as session:
        with pytest.raises(MenagerieError, match="the matrix is singular: pivot 1 is zero"):
            session.run({"p": np.zeros((2, 5, 5), np.float32), "b": _B.numpy()})
        again = session.run({"p": _P.numpy(), "b": _B.numpy()})
    torch.testing.assert_close(
        torch.from_numpy(next(iter(again.values()))), linalg.inv(_P) @ _B, rtol=1e-4, atol=1e-5
    )


def test_the_norm_of_one_number_is_its_size(tmp_path: Path) -> None:
    """The proof tries those whose squares overflow or vanish, too."""
    axis, unit = {1: torch.export.Dim("n", min=1, max=9)}, nn.Module()
    unit.forward = lambda x, y: (
        nn.functional.normalize(x),
        nn.functional.normalize(x[0, 0], dim=0),
        nn.functional.cosine_similarity(x, y),
        nn.functional.pairwise_distance(x, y, eps=0.0),
    )
    given = torch.ones(2, 5), torch.ones(2, 5)
    convert(unit, given, dynamic_shapes=(axis, axis), out=tmp_path / "b", measure_seconds=0)


def test_infinities_leave_no_singular_values(tmp_path: Path) -> None:
    """Eager's are NaN, whose lengths hypot takes for infinite; the proof tries such a matrix."""
    values = nn.Module()
    values.forward = lambda p: (linalg.svdvals(p),)
    convert(values, (_P[0, :4, :4],), out=tmp_path / "out", measure_seconds=0)
    unbounded = torch.full((4, 4), torch.inf)
    assert linalg.svdvals(unbounded).isnan().all()
    assert_as_eager(tmp_path / "out", linalg.svdvals, (unbounded,))


def test_a_factor_stops_where_lapacks_does(tmp_path: Path) -> None:
    """What is behind the part that is not positive definite stays; the other triangle is zero."""
    module = nn.Module()
    module.forward = lambda p: [*linalg.cholesky_ex(p), linalg.cholesky_ex(p, upper=True).L]
    convert(module, (_P,), out=tmp_path / "out", measure_seconds=0)
    wrong = (-_P, _P - 2 * torch.eye(5), torch.zeros(2, 5, 5))
    assert_as_eager(tmp_path / "out", module, *((each,) for each in wrong), **_CLOSE)


def test_a_nan_of_a_reflector_reaches_what_it_reaches_in_eager(tmp_path: Path) -> None:
    """Later columns of the product; neither earlier ones nor what is above the diagonal."""
    module, factors = nn.Module(), torch.tensor([0.5, 1.2, 0.7])
    module.forward = lambda a: [
        linalg.householder_product(a, factors), torch.ormqr(a, factors, _B[0])
    ]  # fmt: skip
    convert(module, (_B[0],), out=tmp_path / "out", measure_seconds=0)
    places = torch.eye(15).reshape(15, 5, 3) == 1
    each = ((torch.where(place, torch.nan, _B[0]),) for place in places)
    assert_as_eager(tmp_path / "out", module, *each, **_CLOSE)


def test_determinants_are_proven_though_infinities_differ(tmp_path: Path) -> None:
    """As an order of sums decides; numbers, zeros and NaN are eager's."""
    module = nn.Module()
    module.forward = lambda p: [linalg.det(p), *linalg.slogdet(p)]
    convert(module, (_P,), out=tmp_path / "out", measure_seconds=0)
    others = (-_P, torch.zeros(2, 5, 5), torch.full((2, 5, 5), torch.nan))
    assert_as_eager(tmp_path / "out", module, *((each,) for each in others), **_CLOSE)


_REFUSALS: list[tuple[Any, float, str]] = [
    (linalg.svdvals, torch.nan, "svd does not converge"),
    (linalg.pinv, torch.nan, "svd does not converge"),
    (lambda p: linalg.eigh(p).eigenvalues, torch.nan, "eigh does not converge"),
    (torch.cholesky_inverse, 0.0, "a diagonal element is zero"),
]


@pytest.mark.parametrize(("function", "element", "fact"), _REFUSALS)
def test_what_lapack_gives_up_on_fails_its_run(
    function: Any, element: float, fact: str, tmp_path: Path
) -> None:
    """As eager raises; the run after it is right."""
    module = nn.Module()
    module.forward = lambda p: (function(p),)
    convert(module, (_P,), out=tmp_path / "out", measure_seconds=0)
    wrong = _P.clone()
    wrong[1, 2, 2] = element
    with pytest.raises(linalg.LinAlgError):
        function(wrong)
    with Session(tmp_path / "out") as session:
        with pytest.raises(MenagerieError, match=fact):
            session.run({"p": wrong.numpy()})
        (again,) = session.run({"p": _P.numpy()}).values()
    torch.testing.assert_close(torch.from_numpy(again), function(_P), rtol=1e-3, atol=1e-3)
