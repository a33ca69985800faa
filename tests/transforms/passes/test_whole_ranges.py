"""Operators that are written out equal eager over the whole range of their arguments.

A program of one call is exported, rewritten and interpreted by eager PyTorch, round the front door:
compiling each of thousands of draws would take hours. What a fixed few of them compute through
`convert()` is tested beside each pass.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from torch import linalg, nn

from tests.examples import examples
from transforms import run_passes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

pytestmark = pytest.mark.filterwarnings("ignore")  # half of what is called is deprecated

Draw = Any  # hypothesis' function that draws from a strategy
Case = tuple["Callable[..., Any]", tuple["Tensor", ...]]

HALVES, FLOATS = (torch.float16, torch.bfloat16), (torch.float32, torch.float64)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
INF, NAN = float("inf"), float("nan")
_ODD = (0.0, -0.0, 1.0, -1.0, NAN, INF, -INF, 3.3)


class _Calls(nn.Module):
    """Some calls one after another, each with its own of the inputs."""

    def __init__(self, cases: Sequence[Case]) -> None:
        super().__init__()
        self._cases = cases

    def forward(self, *inputs: Tensor) -> list[Any]:
        left, results = list(inputs), []
        for call, own in self._cases:
            results.append(call(*left[: len(own)]))
            del left[: len(own)]
        return results


def assert_as_eager(cases: Sequence[Case], name: str, **close: Any) -> None:
    """A pass keeps the results of a program of all the cases that eager computes."""
    expected = [_of_eager(*case) for case in cases]
    cases = [case for case, result in zip(cases, expected, strict=True) if result is not None]
    assume(bool(cases))
    inputs = tuple(tensor for _, given in cases for tensor in given)
    program = torch.export.export(_Calls(cases), inputs, strict=False).run_decompositions({})
    rewritten, _ = run_passes(program, [name])
    results = rewritten.module()(*inputs)
    wanted = [result for result in expected if result is not None]
    for case, got, want in zip(cases, results, wanted, strict=True):
        tolerance = {**_tolerance(case[1]), **close}
        fault = functools.partial("{1}\n{0}".format, _told(case))
        torch.testing.assert_close(got, want, equal_nan=True, msg=fault, **tolerance)


def _told(case: Case) -> str:
    """The call: its function, what that closes over, and its inputs."""
    call, inputs = case
    names = call.__code__.co_freevars if inspect.isfunction(call) else ()
    cells = [cell.cell_contents for cell in getattr(call, "__closure__", None) or ()]
    return f"{call} {dict(zip(names, cells, strict=True))}\n{inputs}"


def _tolerance(inputs: Sequence[Tensor]) -> dict[str, float]:
    limit = {torch.bfloat16: 3e-2, torch.float16: 4e-3, torch.float64: 1e-7}
    worst = max((limit.get(x.dtype, 1e-4) for x in inputs), default=1e-4)
    return {"rtol": worst, "atol": worst}


def _of_eager(call: Callable[..., Any], inputs: Sequence[Tensor]) -> Any:
    """None where eager raises."""
    try:
        return call(*(tensor.clone() for tensor in inputs))
    except (RuntimeError, IndexError, ValueError, NotImplementedError):
        return None


def tensors(draw: Draw, sizes: Sequence[int], dtype: torch.dtype, odd: bool = True) -> Tensor:
    """Noise, ties, one value, or noise with zeros, infinities and NaN sprinkled over it."""
    noise = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    kind = draw(st.sampled_from(["noise", "ties", "equal", "odd"]))
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        low, high = (info.min, info.max) if kind == "odd" and dtype.itemsize < 8 else (0, 3)
        if kind == "equal":
            return torch.full(
                tuple(sizes), draw(st.sampled_from([info.min, 0, info.max])), dtype=dtype
            )
        return torch.randint(low, high + 1, tuple(sizes), generator=noise).to(dtype)
    values = torch.randn(tuple(sizes), generator=noise)
    if kind == "ties":
        values = values.round()
    if kind == "equal":
        values = torch.full(tuple(sizes), draw(st.sampled_from(_ODD if odd else (0.0, -3.3, 2.0))))
    if kind == "odd":
        picks = torch.randint(len(_ODD), tuple(sizes), generator=noise)
        chosen = torch.rand(tuple(sizes), generator=noise) < 0.3
        table = torch.tensor(_ODD if odd else (0.0, -0.0, 1.0, 100.0))
        values = torch.where(chosen, table[picks % len(table)], values)
    return values.to(dtype)


def _shape(
    draw: Draw, least: int = 0, most: int = 3, size: int = 6, empty: bool = False
) -> list[int]:
    return draw(st.lists(st.integers(0 if empty else 1, size), min_size=least, max_size=most))


def _of(draw: Draw, *choices: Any) -> Any:
    return draw(st.sampled_from(choices))


def _any_or_all(draw: Draw) -> Case:
    x = tensors(draw, _shape(draw, empty=True), torch.uint8)
    operator, keepdim = _of(draw, torch.any, torch.all), draw(st.booleans())
    axes = (
        st.lists(
            st.integers(-x.dim(), x.dim() - 1), max_size=x.dim(), unique_by=lambda a: a % x.dim()
        )
        if x.dim()
        else st.just([])
    )
    dim = draw(
        st.none()
        | axes
        | (st.integers(-x.dim(), x.dim() - 1) if x.dim() else st.sampled_from([0, -1]))
    )
    if dim is None:
        return operator, (x,)
    return lambda x: operator(x, dim, keepdim=keepdim), (x,)


def _take(draw: Draw) -> Case:
    x = tensors(draw, _shape(draw, least=1), _of(draw, *HALVES, *FLOATS, *INTEGERS))
    return torch.take, (x, torch.tensor(draw(st.integers(-x.numel(), x.numel() - 1))))


def _pdist(draw: Draw) -> Case:
    p = _of(draw, 0.0, 0.5, 1.0, 2.0, 3.5, INF)
    x = tensors(draw, [draw(st.integers(0, 5)), draw(st.integers(0, 4))], _of(draw, *FLOATS))
    return lambda x: torch.pdist(x, p), (x,)


def _addbmm(draw: Draw) -> Case:
    dtype = _of(draw, *HALVES, *FLOATS, *INTEGERS)
    b, n, m, k = (draw(st.integers(0, 4)) for _ in range(4))
    beta, alpha = _of(draw, 0, 1, 0.5, -1.7), _of(draw, 0, 1, 2, -1.5)
    wide = _of(draw, (n, m), (m,), (1, m), ())
    inputs = (
        tensors(draw, wide, dtype),
        tensors(draw, (b, n, k), dtype),
        tensors(draw, (b, k, m), dtype),
    )
    return lambda s, x, y: torch.addbmm(s, x, y, beta=beta, alpha=alpha), inputs


def _index_reduce(draw: Draw) -> Case:
    dtype = _of(draw, *HALVES, *FLOATS, *INTEGERS)
    shape = _shape(draw)
    dim = draw(st.integers(-len(shape), len(shape) - 1)) if shape else _of(draw, 0, -1)
    count = draw(st.integers(0, 6)) if shape else 1
    wide = list(shape)
    if shape:
        wide[dim] = count
    index = draw(
        st.lists(st.integers(0, shape[dim] - 1 if shape else 0), min_size=count, max_size=count)
    )
    reduce, include = _of(draw, "prod", "mean", "amax", "amin"), draw(st.booleans())
    return (
        lambda x, i, s: x.index_reduce(dim, i, s, reduce, include_self=include),
        (
            tensors(draw, shape, dtype),
            torch.tensor(index, dtype=_of(draw, torch.int64, torch.int32)),
            tensors(draw, wide, dtype),
        ),
    )


def _bilinear(draw: Draw) -> Case:
    dtype = _of(draw, *HALVES, *FLOATS)
    lead, (a, b, o) = _shape(draw, most=2), (draw(st.integers(1, 4)) for _ in range(3))
    inputs = [tensors(draw, s, dtype, odd=False) for s in ((*lead, a), (*lead, b), (o, a, b), (o,))]
    return F.bilinear, tuple(inputs[: _of(draw, 3, 4)])


def _adaptive(draw: Draw) -> Case:
    dtype = _of(draw, *FLOATS, *HALVES)
    x = tensors(draw, [*_shape(draw, 1, 2, 3), *(draw(st.integers(1, 6)) for _ in range(3))], dtype)
    size = draw(st.none() | st.integers(1, 7) | st.tuples(*[st.none() | st.integers(1, 7)] * 3))
    if size is None:
        size = 1
    if draw(st.booleans()):
        return lambda x: F.adaptive_avg_pool3d(x, size), (x,)
    return lambda x: F.adaptive_max_pool3d(x, size, return_indices=True), (x,)


def _choice_of_row(draw: Draw) -> Case:
    operator = _of(draw, torch.median, torch.nanmedian, torch.mode)
    x = tensors(draw, _shape(draw), _of(draw, *FLOATS, *HALVES, *INTEGERS))
    dim, keepdim = draw(st.integers(-max(x.dim(), 1), max(x.dim(), 1) - 1)), draw(st.booleans())
    if operator is torch.nanmedian and draw(st.booleans()):
        return operator, (x,)
    count = 2 if operator is torch.mode else 1  # equal values may trade places in others
    return lambda x: tuple(operator(x, dim, keepdim))[:count], (x,)


def _histc(draw: Draw) -> Case:
    x = tensors(draw, _shape(draw, empty=True), _of(draw, *FLOATS), odd=draw(st.booleans()))
    bins, low, high = (
        draw(st.integers(1, 12)),
        _of(draw, 0, -1, 0.5, -3.3),
        _of(draw, 0, 1, 0.5, 2.2),
    )
    return lambda x: torch.histc(x, bins, low, high), (x,)


def _fake_quantised(draw: Draw) -> Case:
    shape = _shape(draw, least=1)
    x = tensors(draw, shape, _of(draw, *HALVES, *FLOATS)) * _of(draw, 1, 30, 1e19)
    low, high = _of(draw, (-128, 127), (0, 255), (-8, 7))
    axis, zero = draw(st.integers(0, len(shape) - 1)), draw(st.integers(low, high))
    scale, size = _of(draw, 0.1, 0.037, 1.7, 1 / 3), shape[axis] if draw(st.booleans()) else 0
    if not size:
        return lambda x: torch.fake_quantize_per_tensor_affine(x, scale, zero, low, high), (x,)
    scales, zeros = torch.linspace(scale, 2, size), torch.full((size,), zero, dtype=torch.int32)
    call = torch.fake_quantize_per_channel_affine
    return lambda x, s, z: call(x, s, z, axis, low, high), (x, scales, zeros)


def _near_zero(draw: Draw) -> Case:
    """Numbers that a sum with 1 would lose, whose result is of their size."""
    x = tensors(draw, _shape(draw), _of(draw, *HALVES, *FLOATS, torch.int32))
    scale = _of(draw, 1, 0.3, 1e-3, 1e-25) if x.is_floating_point() else 1
    unit = 2.0**100 if scale == 1e-25 else 1.0
    call = _of(draw, torch.erf, torch.atanh)
    return lambda x: call(x) * unit, (x * scale,)


def _cross_entropy(draw: Draw) -> Case:
    n, c, k = (draw(st.integers(1, 5)) for _ in range(3))
    dtype = _of(draw, *FLOATS)
    reduction, smoothing = _of(draw, "none", "mean", "sum"), _of(draw, 0.0, 0.3)
    ignored = _of(draw, -100, 0)
    target = torch.tensor(
        draw(st.lists(st.integers(0, k - 1) | st.just(ignored), min_size=n, max_size=n))
    )
    return (
        lambda x, w, t: F.linear_cross_entropy(
            x, w, t, reduction=reduction, label_smoothing=smoothing, ignore_index=ignored
        ),
        (tensors(draw, (n, c), dtype, odd=False), tensors(draw, (k, c), dtype, odd=False), target),
    )


def _bags(draw: Draw) -> Case:
    dtype, rows, n = _of(draw, *FLOATS, *HALVES), draw(st.integers(1, 5)), draw(st.integers(0, 8))
    mode, last = _of(draw, "sum", "mean", "max"), draw(st.booleans())
    padding = draw(st.none() | st.integers(-rows, rows - 1))
    weight = tensors(draw, (rows, draw(st.integers(1, 3))), dtype)
    index = _of(draw, torch.int64, torch.int32)
    numbers = draw(st.lists(st.integers(0, rows - 1), min_size=n, max_size=n))
    begins = [0, *sorted(draw(st.lists(st.integers(0, n), min_size=last, max_size=4)))]
    inputs = [torch.tensor(numbers, dtype=index), weight, torch.tensor(begins, dtype=index)]
    if mode == "sum" and draw(st.booleans()):
        inputs.append(tensors(draw, (n,), dtype))
    return (
        lambda i, w, o, s=None: F.embedding_bag(
            i, w, o, mode=mode, padding_idx=padding, include_last_offset=last, per_sample_weights=s
        ),
        tuple(inputs),
    )


def _volumes(draw: Draw) -> Case:
    dtype = _of(draw, *FLOATS)
    sizes = [draw(st.integers(1, 4)) for _ in range(5)]
    grid = [sizes[0], *(draw(st.integers(1, 3)) for _ in range(3)), 3]
    mode, padding, align = (
        _of(draw, "bilinear", "nearest"),
        _of(draw, "zeros", "border", "reflection"),
        draw(st.booleans()),
    )
    places = tensors(draw, grid, dtype, odd=False) * _of(draw, 0.5, 1.5, 40.0)
    return lambda x, g: F.grid_sample(x, g, mode, padding, align), (
        tensors(draw, sizes, dtype, odd=False),
        places,
    )


def _resized(draw: Draw) -> Case:
    mode, align = _of(draw, "bilinear", "bicubic"), draw(st.booleans())
    sizes = [
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
        *(draw(st.integers(1, 12)) for _ in range(2)),
    ]
    x = tensors(draw, sizes, _of(draw, *FLOATS, *HALVES, torch.uint8), odd=False)
    # To a width of 1 eager gives other numbers for the same images in channels_last.
    how: dict[str, Any] = {"size": (draw(st.integers(1, 20)), draw(st.integers(2, 20)))}
    if draw(st.booleans()):
        how = {
            "scale_factor": (_of(draw, 0.4, 1.0, 1.7, 3.0), _of(draw, 1.3, 1.0, 1.7, 3.0)),
            "recompute_scale_factor": _of(draw, None, True),
        }
    return lambda x: F.interpolate(x, mode=mode, antialias=True, align_corners=align, **how), (x,)


def _margins(draw: Draw) -> Case:
    x = tensors(draw, _shape(draw, most=2), _of(draw, *FLOATS))
    noise = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    classes = x.shape[-1] if x.dim() else 1
    target = torch.randint(-1, classes, x.shape, generator=noise)
    how = _of(draw, "none", "mean", "sum")
    return lambda x, t: F.multilabel_margin_loss(x, t, reduction=how), (x, target)


RARE = {
    f.__name__[1:]: f
    for f in (
        _any_or_all, _take, _pdist, _addbmm, _index_reduce, _bilinear, _adaptive, _choice_of_row,
        _histc, _fake_quantised, _near_zero, _cross_entropy, _bags, _volumes, _resized, _margins,
    )
}  # fmt: skip


def _matrix(
    draw: Draw, batch: Sequence[int], rows: int, columns: int, dtype: torch.dtype
) -> Tensor:
    """Of noise, ties, zeros, one value; some of them of lower rank."""
    a = tensors(draw, (*batch, rows, columns), dtype, odd=False)
    match _of(draw, "as it is", "repeated row", "symmetric"):
        case "repeated row" if rows > 1:
            a[..., -1, :] = a[..., 0, :]
        case "symmetric" if rows == columns:
            a = a + a.mT
    return a


def _square(draw: Draw, most: int = 4) -> tuple[list[int], int, torch.dtype]:
    return _shape(draw, most=2, size=3, empty=True), draw(st.integers(0, most)), _of(draw, *FLOATS)


def _positive(a: Tensor) -> Tensor:
    return a @ a.mT + torch.eye(a.shape[-1], dtype=a.dtype)


def _invertible(a: Tensor) -> Tensor:
    return a.triu() + 9 * torch.eye(a.shape[-1], dtype=a.dtype) + a.tril(-1).flip(-1) / 9


def _choleskies(draw: Draw) -> Case:
    batch, n, dtype = _square(draw)
    a, b = (
        _matrix(draw, batch, n, n, dtype),
        _matrix(draw, batch, n, draw(st.integers(0, 3)), dtype),
    )
    upper, regular = draw(st.booleans()), draw(st.booleans())
    p = _positive(a) if regular else a
    f = linalg.cholesky_ex(_positive(a), upper=upper)[0]
    return _of(
        draw,
        (lambda p: linalg.cholesky(p, upper=upper), (p,)),
        (lambda p: torch.cholesky(p, upper=upper), (p,)),
        (lambda p: linalg.cholesky_ex(p, upper=upper)[1], (p,)),
        (lambda f, b: torch.cholesky_solve(b, f, upper=upper), (f, b)),
        (lambda f: torch.cholesky_inverse(f, upper=upper), (f,)),
    )


def _triangles(draw: Draw) -> Case:
    batch, n, dtype = _square(draw)
    upper, left, unit, turned = (draw(st.booleans()) for _ in range(4))
    columns = draw(st.integers(0, 3))
    a = _invertible(_matrix(draw, _of(draw, batch, batch[1:], []), n, n, dtype))
    a = _of(draw, a, a.mT, a * 0)
    b = _matrix(draw, batch, *((n, columns) if left else (columns, n)), dtype)
    if left and draw(st.booleans()):
        return lambda a, b: tuple(torch.triangular_solve(b, a, upper, turned, unit)), (a, b)
    return lambda a, b: linalg.solve_triangular(a, b, upper=upper, left=left, unitriangular=unit), (
        a,
        b,
    )


def _lus(draw: Draw) -> Case:
    batch, n, dtype = _square(draw)
    a, m = (
        _matrix(draw, batch, n, draw(st.integers(0, 4)), dtype),
        _invertible(_matrix(draw, batch, n, n, dtype)),
    )
    left, adjoint, data, pivots = (draw(st.booleans()) for _ in range(4))
    columns = draw(st.integers(0, 3))
    b = _matrix(draw, batch, *((n, columns) if left else (columns, n)), dtype)
    wide = b.unsqueeze(0).expand(2, *b.shape).contiguous() if draw(st.booleans()) else b
    return _of(
        draw,
        (lambda a: linalg.lu(a, pivot=True), (a,)),
        (linalg.lu_factor_ex, (a,)),
        (linalg.lu_factor, (m,)),
        (lambda a: torch.lu_unpack(*linalg.lu_factor_ex(a)[:2], data, pivots), (a,)),
        (lambda m, b: linalg.lu_solve(*linalg.lu_factor(m), b, left=left, adjoint=adjoint), (m, b)),
        (
            lambda m, b: linalg.lu_solve(*linalg.lu_factor(m), b, left=left, adjoint=adjoint),
            (m, wide),
        ),
    )


def _solutions(draw: Draw) -> Case:
    batch, n, dtype = _square(draw)
    m, left, columns = (
        _invertible(_matrix(draw, batch, n, n, dtype)),
        draw(st.booleans()),
        draw(st.integers(0, 3)),
    )
    if draw(st.booleans()):
        m = _matrix(draw, batch, n, n, dtype)  # some of these are singular
    b = _matrix(draw, batch, *((n, columns) if left else (columns, n)), dtype)
    v = tensors(draw, (*batch, n), dtype, odd=False)
    power = draw(st.integers(-3, 5))
    return _of(
        draw,
        (lambda m, b: linalg.solve(m, b, left=left), (m, b)),
        (linalg.solve, (m, v)),
        (linalg.solve, (m, v.reshape(-1, n)[0] if v.numel() else v)),
        (
            lambda m, b: linalg.solve(m, b, left=left),
            (m.reshape(-1, n, n)[0] if m.numel() else m, b),
        ),
        (lambda m, b: linalg.solve_ex(m, b, left=left)[1], (m, b)),
        (linalg.inv, (m,)),
        (lambda m: linalg.inv_ex(m)[1], (m,)),
        (lambda m: linalg.matrix_power(m, power), (m,)),
        (lambda m: linalg.tensorinv(m, ind=m.dim() - 2 or 1), (m,)),
    )


def _determinants(draw: Draw) -> Case:
    batch, n, dtype = _square(draw)
    a = _matrix(draw, batch, n, n, dtype)
    if draw(st.booleans()):
        return linalg.det, (a,)
    operator = _of(draw, torch.logdet, linalg.slogdet)  # rounding gives singular ones any sign
    return operator, (_invertible(a),)


def _products(draw: Draw) -> Case:
    batch, n, dtype = _square(draw)
    a, mode = (
        _matrix(draw, batch, n, draw(st.integers(0, 4)), dtype),
        _of(draw, "reduced", "complete", "r"),
    )
    left, turned = draw(st.booleans()), draw(st.booleans())
    b = _matrix(draw, batch, *((n, 2) if left else (2, n)), dtype)
    return _of(
        draw,
        (lambda a: linalg.qr(a, mode)[1 if mode == "r" else slice(2)], (a,)),
        (torch.geqrf, (a,)),
        (lambda a: linalg.householder_product(*torch.geqrf(a)), (a,)),
        (lambda a, b: torch.ormqr(*torch.geqrf(a), b, left, turned), (a, b)),
    )


def _values(draw: Draw) -> Case:
    batch, n, dtype = _square(draw)
    s = _matrix(draw, batch, n, n, dtype)
    a = _matrix(draw, batch, n, draw(st.integers(0, 4)), dtype)
    part, keepdim = _of(draw, "L", "U"), draw(st.booleans())
    p, rtol, dim = (
        _of(draw, None, 2, -2, "nuc", "fro", 1, -INF),
        _of(draw, 1e-3, 0.5),
        _of(draw, (-2, -1), (-1, -2), (0, -1)),
    )
    return _of(
        draw,
        (lambda s: linalg.eigvalsh(s, part), (s,)),
        (lambda s: linalg.eigh(s, part)[0], (s,)),
        (linalg.svdvals, (a,)),
        (lambda a: linalg.svd(a, full_matrices=keepdim)[1], (a,)),
        (lambda a: linalg.pinv(a, rtol=rtol), (a,)),
        (lambda a: linalg.pinv(a, atol=rtol, rtol=rtol), (a,)),
        (lambda s: linalg.pinv(s + s.mT, rtol=rtol, hermitian=True), (s,)),
        (lambda a: linalg.matrix_rank(a, rtol=rtol), (a,)),
        (lambda s: linalg.matrix_rank(s + s.mT, atol=rtol, hermitian=True), (s,)),
        (lambda a: linalg.cond(a, p), (_invertible(s),)),
        (lambda a: linalg.matrix_norm(a, "nuc" if p is None else p, dim, keepdim), (a,)),
        (lambda a: linalg.norm(a, 2, dim, keepdim), (a,)),
    )


def _exponentials(draw: Draw) -> Case:
    batch, n, dtype = _square(draw)
    return torch.matrix_exp, (_matrix(draw, batch, n, n, dtype) * _of(draw, 1e-3, 1, 4),)


LINEAR = {
    f.__name__[1:]: f
    for f in (
        _choleskies, _triangles, _lus, _solutions, _determinants, _products, _values, _exponentials,
    )
}  # fmt: skip


def _signal(draw: Draw, *sizes: int) -> Tensor:
    return tensors(draw, sizes, _of(draw, *FLOATS), odd=False)


def _stfts(draw: Draw) -> Case:
    n = draw(st.integers(2, 12))
    x = _signal(draw, *_shape(draw, most=1, size=2), draw(st.integers(n, 30)))
    width, hop = draw(st.none() | st.integers(1, n)), draw(st.none() | st.integers(1, n))
    mode = _of(draw, "reflect", "constant", "replicate", "circular")
    center, normalized, onesided = (draw(st.booleans()) for _ in range(3))
    window = _of(
        draw,
        None,
        torch.hann_window(width or n, dtype=x.dtype),
        torch.ones(width or n, dtype=x.dtype),
    )
    return (
        lambda x: torch.view_as_real(
            torch.stft(
                x, n, hop, width, window, center, mode, normalized, onesided, return_complex=True
            )
        ),
        (x,),
    )


def _istfts(draw: Draw) -> Case:
    n, frames = 2 * draw(st.integers(1, 6)), draw(st.integers(1, 6))
    hop = draw(st.integers(1, max(n // 2, 1)))
    center, normalized = draw(st.booleans()), draw(st.booleans())
    bins, onesided = _of(draw, (n // 2 + 1, None), (n, False), (n, None))
    planes = _signal(draw, *_shape(draw, most=1, size=2), bins, frames, 2)
    length = draw(st.none() | st.integers(1, 20))
    window = _of(draw, None, torch.hamming_window(n, dtype=planes.dtype))
    return (
        lambda x: torch.istft(
            torch.view_as_complex(x), n, hop, None, window, center, normalized, onesided, length
        ),
        (planes,),
    )


def _transforms(draw: Draw) -> Case:
    name = _of(
        draw,
        "fft",
        "ifft",
        "rfft",
        "irfft",
        "hfft",
        "ihfft",
        "fft2",
        "ifft2",
        "rfft2",
        "irfft2",
        "fftn",
        "ifftn",
        "rfftn",
        "irfftn",
    )
    operator, norm = getattr(torch.fft, name), _of(draw, None, "backward", "ortho", "forward")
    x = _signal(draw, *(draw(st.integers(1, 5)) for _ in range(3)))
    how: dict[str, Any] = {"norm": norm}
    if name.endswith(("2", "n")):
        how["s"], how["dim"] = _of(
            draw, (None, (0, 2)), (None, (-1, -2)), ((3, 4), (1, 2)), ((4, 3), (-1, 0))
        )
    else:
        how["n"], how["dim"] = draw(st.none() | st.integers(1, 7)), draw(st.integers(-3, 2))

    def call(x: Tensor) -> Tensor:
        found = operator(x, **how)
        return torch.view_as_real(found) if found.is_complex() else found

    return call, (x,)


FOURIER = {f.__name__[1:]: f for f in (_stfts, _istfts, _transforms)}


_ranges = settings(
    max_examples=examples(2, 3),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
    derandomize=True,
)
_KINDS = [
    *((name, draw, "decompose_rare_operators") for name, draw in (RARE | LINEAR).items()),
    *((name, draw, "decompose_stft") for name, draw in FOURIER.items()),
]


@pytest.mark.parametrize(
    ("draw", "passed"),
    [
        pytest.param(*rest, id=name, marks=[pytest.mark.sweep] * (name == "volumes"))
        for name, *rest in _KINDS
    ],
)
@_ranges
@given(data=st.data())
def test_what_is_written_out_equals_eager(draw: Any, passed: str, data: st.DataObject) -> None:
    """Zeros, ties, NaN, infinities, nothing at all, every dtype, mode, axis and triangle."""
    assert_as_eager([draw(data.draw) for _ in range(8)], passed)
