"""DecomposeRareOperators: what no runtime has a kernel for converts, and computes as eager does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from transforms import convert, run_passes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# index_reduce is called unfinished by torch.
pytestmark = pytest.mark.filterwarnings("ignore:index_reduce:UserWarning")

NAN = float("nan")
_NOISE = torch.Generator().manual_seed(7)


def _noise(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=_NOISE)


def _drawn(*sizes: int, below: int = 4) -> torch.Tensor:
    return torch.randint(0, below, sizes, generator=_NOISE)


def _with_nan() -> torch.Tensor:
    """Rows without NaN, with one, and with several; none of NaN alone."""
    x = _noise(5, 7, 4)
    x[0, 1, 2] = x[3, 2:5, 3] = x[4, 0, 0] = x[1, :6, 1] = NAN
    return x


def _bags(mode: str, **options: Any) -> Callable[..., torch.Tensor]:
    def bags(indices: torch.Tensor, weight: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return F.embedding_bag(indices, weight, offsets, mode=mode, **options)

    return bags


def _sampled(**options: Any) -> Callable[..., torch.Tensor]:
    return lambda x, grid: F.grid_sample(x, grid, **options)


def _resized(mode: str, size: tuple[int, int], align: bool) -> Callable[..., torch.Tensor]:
    return lambda x: F.interpolate(x, size, mode=mode, antialias=True, align_corners=align)


_VOLUMES = _noise(2, 3, 5, 6, 7)
_INDICES, _WEIGHT = torch.tensor([1, 3, 3, 3, 5, 9, 0]), _noise(10, 3)
_GRID = _noise(2, 3, 2, 4, 3) * 1.2
_FAR_GRID = _GRID.clone()  # in a corner, NaN and places outside of every volume
_FAR_GRID[0, 0, 0] = torch.tensor([[NAN] * 3, [0.5, NAN, 0], [torch.inf] * 3, [-torch.inf] * 3])
_FAR_GRID[1, 2, 1, 3] = torch.tensor([3e38, -3e38, 0.1])
_BYTES = _drawn(4, 5).to(torch.uint8)


def _infinities() -> torch.Tensor:
    """One in the first window, and nothing but negative ones in the last."""
    volumes = torch.rand(1, 2, 4, 4, 4, generator=_NOISE)
    volumes[..., 0, 0, 0] = torch.inf
    volumes[..., 2:, 2:, 2:] = -torch.inf
    return volumes


CALLS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "any of bytes": (
        lambda x: torch.cat([x.any(0), x.any()[None], x.any((0, 1))[None]]),
        (_BYTES,),
    ),
    "all of bytes": (
        lambda x: torch.cat([x.all(1), x.all()[None], x.all((0, 1))[None]]),
        (_BYTES,),
    ),
    "take of one": (torch.take, (_noise(4, 5), torch.tensor(13))),
    "pdist": (lambda x: torch.pdist(torch.cat([x, x + 1e-3])), (_noise(6, 5),)),
    "pdist, sums": (lambda x: torch.pdist(x, 1.0), (_noise(6, 5),)),
    "addbmm": (
        lambda s, a, b: torch.addbmm(s, a, b, beta=0.5, alpha=2),
        (_noise(3, 4), _noise(2, 3, 5), _noise(2, 5, 4)),
    ),
    "addbmm of integers": (
        lambda s, a, b: torch.addbmm(s, a, b, beta=1.7, alpha=2),
        (_drawn(3, 4), _drawn(2, 3, 5), _drawn(2, 5, 4)),
    ),
    "index_reduce": (
        lambda x, index, source: tuple(
            x.index_reduce(1, index, source, kind, include_self=include)
            for kind in ("prod", "mean", "amax", "amin")
            for include in (True, False)
        ),
        (_noise(2, 4, 3), torch.tensor([0, 2, 2, 0, 1]), _noise(2, 5, 3)),
    ),
    "bilinear": (F.bilinear, (_noise(2, 3), _noise(2, 4), _noise(5, 3, 4), _noise(5))),
    "bilinear without a bias": (F.bilinear, (_noise(2, 3), _noise(2, 4), _noise(5, 3, 4))),
    "adaptive_max_pool3d of equal values": (
        lambda x: F.adaptive_max_pool3d(x, (2, 4, 3), return_indices=True),
        (_drawn(2, 3, 5, 6, 7).float(),),
    ),
    "adaptive pools around infinities": (
        lambda x: (F.adaptive_avg_pool3d(x, 2), *F.adaptive_max_pool3d(x, 2, return_indices=True)),
        (_infinities(),),
    ),
    "histc": (lambda x: torch.histc(x, 7, -1, 1), (_noise(1000),)),
    "histc of its own range": (lambda x: torch.histc(x, 10), (torch.arange(10.0),)),
    "histc of one value": (lambda x: torch.histc(x, 5), (torch.ones(4),)),
    "nanmedian of all": (torch.nanmedian, (_with_nan(),)),
    "nanmedian of NaN": (torch.nanmedian, (torch.full((3,), NAN),)),
    "nanmedian of integers": (torch.nanmedian, (_drawn(9, below=100),)),
}
for sizes in ((2, 4, 3), (5, 1, 7), (7, 8, 9)):
    CALLS[f"adaptive pools of {sizes}"] = (
        lambda x, s=sizes: (
            F.adaptive_avg_pool3d(x, s), F.adaptive_avg_pool3d(x[0], s), F.adaptive_max_pool3d(x, s)
        ),
        (_VOLUMES,),
    )  # fmt: skip
for axis in (0, 1, -1):
    CALLS[f"medians along {axis}"] = (
        lambda x, a=axis: (torch.median(x, a), torch.nanmedian(x, a, True), torch.nanmedian(x, a)),
        (_with_nan(),),
    )
    CALLS[f"modes along {axis}"] = (
        lambda x, a=axis: (torch.mode(x, a), torch.mode(x.float(), a, True)),
        (_drawn(5, 7, 4),),
    )
for mode in ("sum", "mean", "max"):
    for offsets, options in (
        ([0, 2, 2, 5], {}),
        ([0, 2, 2, 5], {"padding_idx": 3}),
        ([0, 3, 7], {"include_last_offset": True}),
    ):
        CALLS[f"embedding_bag, {mode}, {offsets}, {options}"] = (
            _bags(mode, **options),
            (_INDICES, _WEIGHT, torch.tensor(offsets)),
        )
for mode in ("bilinear", "nearest"):
    for padding in ("zeros", "border", "reflection"):
        for align in (False, True):
            CALLS[f"grid_sample, {mode}, {padding}, {align}"] = (
                _sampled(mode=mode, padding_mode=padding, align_corners=align),
                (_VOLUMES, _GRID),
            )
            CALLS[f"grid_sample at NaN, {mode}, {padding}, {align}"] = (
                _sampled(mode=mode, padding_mode=padding, align_corners=align),
                (_VOLUMES, _FAR_GRID),
            )
for mode in ("bilinear", "bicubic"):
    for size in ((5, 7), (20, 33), (1, 1), (9, 12), (3, 40)):
        CALLS[f"interpolate, {mode}, {size}"] = (
            lambda x, m=mode, s=size: tuple(_resized(m, s, align)(x) for align in (False, True)),
            (_noise(2, 3, 9, 12),),
        )
    CALLS[f"bytes without antialiasing, {mode}"] = (
        lambda x, m=mode: tuple(
            F.interpolate(x, size, factor, mode=m, align_corners=align)
            for align in (False, True)
            for size, factor in (((5, 20), None), ((1, 7), None), (None, (1.7, 0.4)))
        ),
        ((torch.arange(2 * 6 * 9 * 12) * 41 % 256).to(torch.uint8).reshape(2, 6, 9, 12),),
    )
    CALLS[f"interpolate, {mode}, by factors"] = (
        lambda x, m=mode: F.interpolate(x, scale_factor=(0.47, 0.45), mode=m, antialias=True),
        (_noise(1, 3, 9, 12),),
    )


class _Calls(nn.Module):
    """Some of the calls, one after another, each with its own of the inputs."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self._names = names

    def forward(self, *inputs: torch.Tensor) -> list[Any]:
        results, left = [], list(inputs)
        for name in self._names:
            call, given = CALLS[name]
            results.append(call(*left[: len(given)]))
            del left[: len(given)]
        return results


# Calls that others differ from by arguments of the same arithmetic alone, or by more inputs.
_IN_THE_SWEEP = re.compile(r"grid_sample, |interpolate, \w+, \((9, 12|3, 40|1, 1)\)")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.sweep] * bool(_IN_THE_SWEEP.match(name)))
        for name in CALLS
    ],
)
def test_what_is_written_out_computes_as_eager_does(name: str) -> None:
    """NaN, equal values, empty bags, places outside and all modes; each without its operator."""
    call, inputs = CALLS[name]
    program = torch.export.export(_Calls([name]), inputs, strict=False)
    rewritten, log = run_passes(program.run_decompositions({}), ["decompose_rare_operators"])
    assert log.records[0].changes, "the operator was not met"
    result = rewritten.module()(*inputs)
    torch.testing.assert_close(result, [call(*inputs)], equal_nan=True)


@pytest.mark.sweep
@pytest.mark.parametrize("target", ["cpu", "metal"])
def test_programs_of_rare_operators_are_proven(target: str, tmp_path: Path) -> None:
    """Through the front door, one call of each kind."""
    kinds = {name.split(" ")[0].rstrip(","): name for name in CALLS if "NaN" not in name}
    names = list(kinds.values())
    inputs = tuple(tensor for name in names for tensor in CALLS[name][1])
    convert(_Calls(names), inputs, target=target, out=tmp_path / "out", measure_seconds=0)


class _Resized(nn.Module):
    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        halved = F.interpolate(images / 255, scale_factor=0.5, mode="bilinear", antialias=True)
        return F.interpolate(images, (24, 24), mode="bicubic", antialias=True), halved


@pytest.mark.sweep
def test_images_of_any_height_are_resized(tmp_path: Path) -> None:
    """The widths of kernels follow a dynamic size, from enlarging to making smaller."""
    height = {2: torch.export.Dim("height", min=6, max=80)}
    images = torch.randint(256, (2, 3, 50, 40), dtype=torch.uint8, generator=_NOISE)
    convert(
        _Resized(), (images,), dynamic_shapes=(height,), out=tmp_path / "out", measure_seconds=0
    )


class _Pyramid(nn.Module):
    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        best, where = F.adaptive_max_pool2d(images, (2, 3), return_indices=True)
        whole, line = F.adaptive_avg_pool2d(images, 1), F.adaptive_avg_pool1d(images[:, 0], 4)
        return F.adaptive_avg_pool2d(images, (3, 5)), best, where, whole, line


class _AsLarge(nn.Module):
    def forward(self, images: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        return F.adaptive_avg_pool2d(images, others.shape[-2:])


def test_as_many_windows_as_another_input_has_places(tmp_path: Path) -> None:
    """Where the result's size alone is dynamic."""
    sizes = {2: torch.export.Dim("high", min=2, max=9), 3: torch.export.Dim("wide", min=2, max=9)}
    given = (torch.randn(1, 2, 12, 12, generator=_NOISE), torch.randn(1, 2, 4, 5))
    shapes, out = ({}, sizes), tmp_path / "out"
    convert(_AsLarge(), given, dynamic_shapes=shapes, out=out, measure_seconds=0)


class _Halves(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.adaptive_avg_pool1d(x, 2)


def test_sums_of_long_windows_of_halves_are_finite() -> None:
    """1.5 on 140,000 places is 1.5 on average; what its windows add up to is no half."""
    length = torch.export.Dim("length", min=2, max=200_000)
    example = torch.ones(1, 1, 9, dtype=torch.half)
    program = torch.export.export(_Halves(), (example,), dynamic_shapes=({2: length},))
    rewritten, _ = run_passes(program.run_decompositions({}), ["decompose_rare_operators"])
    found = rewritten.module()(torch.full((1, 1, 140_000), 1.5).half())
    assert found.tolist() == [[[1.5, 1.5]]]


class _Box(nn.Module):
    def forward(self, volumes: torch.Tensor) -> tuple[torch.Tensor, ...]:
        best, where = F.adaptive_max_pool3d(volumes, (2, 1, 3), return_indices=True)
        return F.adaptive_avg_pool3d(volumes, (2, 2, 1)), best, where


@pytest.mark.parametrize(
    ("module", "axes", "target"),
    [
        (_Pyramid(), 2, "cpu"),
        pytest.param(_Pyramid(), 2, "metal", marks=pytest.mark.sweep),
        pytest.param(_Box(), 3, "metal", marks=pytest.mark.sweep),
        pytest.param(_Box(), 3, "cpu", marks=pytest.mark.sweep),
    ],
)
def test_windows_follow_dynamic_sizes(
    module: nn.Module, axes: int, target: str, tmp_path: Path
) -> None:
    """Of images and volumes smaller than the result and larger; of equal values the first."""
    sizes = {axis: torch.export.Dim(f"n{axis}", min=2, max=9) for axis in range(2, 2 + axes)}
    given = torch.randint(4, (1, 2, 6, 7, 5)[: 2 + axes], generator=_NOISE).float()
    out = tmp_path / "out"
    convert(module, (given,), target=target, dynamic_shapes=(sizes,), out=out, measure_seconds=0)


class _Inverse(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        lines = torch.diag(a[0]), torch.diag(b[0, :, 0])[0], b.diagonal(0, 2, 1), torch.trace(b[1])
        return torch.linalg.inv(a), torch.linalg.solve(a, b), torch.linalg.det(a), *lines


@pytest.mark.parametrize("target", ["cpu", pytest.param("metal", marks=pytest.mark.sweep)])
def test_matrices_of_any_order_are_inverted(target: str, tmp_path: Path) -> None:
    """The rows that a factorisation exchanges are as many as the order; so are diagonals."""
    order = torch.export.Dim("order", min=2, max=6)
    given = torch.randn(2, 5, 5, generator=_NOISE), torch.randn(2, 5, 3, generator=_NOISE)
    shapes, out = ({1: order, 2: order}, {1: order}), tmp_path / "out"
    convert(_Inverse(), given, target=target, dynamic_shapes=shapes, out=out, measure_seconds=0)
