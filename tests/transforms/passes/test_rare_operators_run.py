"""Artifacts of rare operators equal eager for inputs unlike their example, and raise as it does."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import menagerie
from menagerie.errors import MenagerieError
from tests.pieces import assert_as_eager
from transforms import convert
from zoo.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_CLOSE = {"rtol": 1e-5, "atol": 1e-5}
NAN, INF = float("nan"), float("inf")
_NOISE = torch.Generator().manual_seed(1)


class _Rare(nn.Module):
    """Bags in all modes, covariances, places of what is not zero, steps, norms, and bits."""

    def forward(
        self, w: torch.Tensor, i: torch.Tensor, o: torch.Tensor, x: torch.Tensor,
        f: torch.Tensor, a: torch.Tensor, m: torch.Tensor, h: torch.Tensor,
    ) -> list[torch.Tensor]:  # fmt: skip
        bags = [
            F.embedding_bag(i, w, o, mode=mode, padding_idx=row, include_last_offset=last)
            for mode in ("sum", "mean", "max")
            for row in (None, -2)
            for last in (False, True)
        ]
        spread = [torch.cov(x), torch.cov(x[0]), torch.corrcoef(x), torch.corrcoef(x[0])]
        spread += [torch.cov(x, correction=0, fweights=f), torch.cov(x, fweights=f, aweights=a)]
        places = [torch.nonzero_static(m, size=3), torch.nonzero_static(x, size=40, fill_value=7)]
        parts = [torch.histc(x, 4), torch.histc(x, 3, -1, 1)]
        halves, whole = h[:, 0].sort().values, f.sort().values
        search = torch.searchsorted  # a number alone is compared as the sequence's dtype, or wider
        ranks = [search(halves, 0.1), search(whole, 1.5), search(halves, x[0, 0], side="right")]
        steps = [torch.fake_quantize_per_tensor_affine(each, 0.1, 3, -128, 127) for each in (x, h)]
        scales, zeros = torch.linspace(0.03, 1, 6), torch.arange(6, dtype=torch.int32)
        steps += [torch.fake_quantize_per_channel_affine(x, scales, zeros, 1, -8, 7)]
        bits = x.view(torch.int32)
        return [*bags, *spread, *places, *parts, *ranks, *steps, bits, F.layer_norm(h, (1,))]


_EXAMPLE = {
    "w": torch.randn(5, 3, generator=_NOISE),
    "i": torch.tensor([1, 2, 3, 4, 0, 1, 4, 3]),
    "o": torch.tensor([0, 2, 8]),
    "x": torch.randn(4, 6, generator=_NOISE),
    "f": torch.tensor([1, 2, 1, 3, 1, 1]),
    "a": torch.rand(6, generator=_NOISE),
    "m": torch.rand(2, 3, 2, generator=_NOISE) > 0.5,
    "h": torch.randn(7, 1, generator=_NOISE).half(),
}
_ODD = [[1.0, NAN, 2.0], [3, 4, -INF], [5, 6, INF], [-INF, NAN, NAN], [NAN, 2, 3]]
_OTHERS: list[dict[str, Any]] = [
    {"o": torch.tensor([0, 0, 3]), "m": torch.zeros(2, 3, 2, dtype=torch.bool)},
    {"w": torch.tensor(_ODD), "o": torch.tensor([0, 4, 6]), "x": torch.full((4, 6), 3.3)},
    {"i": torch.full((8,), 3), "o": torch.tensor([0, 8, 8]), "m": torch.ones(2, 3, 2).bool()},
    {"x": torch.full((4, 6), NAN)},
    {"x": torch.zeros(4, 6), "h": torch.zeros(7, 1).half()},
    {"x": torch.full((4, 6), 0.1), "h": torch.full((7, 1), 0.1).half()},
    {"i": torch.tensor([-1, 0, 3, 3, 4, 1, 1, 1])},
    {"i": torch.tensor([1, 2, 3, 4, 5, 1, 1, 1])},
    {"o": torch.tensor([1, 2, 3])},
    {"o": torch.tensor([0, 2, 20])},
    {"f": -_EXAMPLE["f"]},
    {"f": 0 * _EXAMPLE["f"]},
    {"a": -_EXAMPLE["a"]},
]


@pytest.mark.parametrize("target", ["cpu", pytest.param("metal", marks=pytest.mark.sweep)])
def test_other_values_than_the_example(target: str, tmp_path: Path) -> None:
    """NaN, empty and padded bags, equal rows; and where eager raises, so does the artifact."""
    made = convert(
        _Rare(), tuple(_EXAMPLE.values()), target=target, out=tmp_path / "out", measure_seconds=0
    )
    with menagerie.open(made.folder) as session:
        for other in _OTHERS:
            inputs = {**_EXAMPLE, **other}
            feed = {name: tensor.numpy() for name, tensor in inputs.items()}
            try:
                wanted = _Rare()(*inputs.values())
            except RuntimeError:
                with pytest.raises(MenagerieError):
                    session.run(feed)
                continue
            found = [torch.from_numpy(value) for value in session.run(feed).values()]
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4, equal_nan=True)


_PIXELS = torch.arange(18.0).reshape(1, 2, 3, 3)
_POINTS = torch.tensor([[300.0, 0], [0, -300.5], [137.3, 211.7], [1, 1], [0.4, -0.3], [-1.2, 0.1]])


class _Sampled(nn.Module):
    """Images at points of a grid, in the ways that are named by their arguments."""

    def __init__(self, ways: list[tuple[str, str, bool]]) -> None:
        super().__init__()
        self._ways = ways

    def forward(self, x: torch.Tensor, grid: torch.Tensor) -> list[torch.Tensor]:
        return [F.grid_sample(x, grid, *way) for way in self._ways]


@pytest.mark.parametrize(
    ("target", "ways"),
    [
        ("cpu", [("bilinear", "zeros", False), ("bilinear", "border", True)]),
        ("cpu", [("bicubic", "zeros", True), ("nearest", "reflection", True)]),
        ("metal", [("bilinear", "reflection", False), ("nearest", "zeros", False)]),
    ],
)
def test_samples_of_odd_pixels_at_far_places(
    target: str, ways: list[tuple[str, str, bool]], tmp_path: Path
) -> None:
    """A pixel counts where it is met alone, and a far place is reflected often; of any height."""
    module, points = _Sampled(ways), _POINTS[None, None]
    given, height = (torch.rand(1, 2, 4, 3), points), torch.export.Dim("height", min=1, max=9)
    how = {"target": target, "out": tmp_path / "out", "measure_seconds": 0}
    made = convert(module, given, dynamic_shapes=({2: height}, {}), **how)
    for odd in (0.0, NAN, INF):
        x = _PIXELS.clone()
        x[..., 0, 0] = x[..., -1, -1] = odd
        calls = ((x, places) for places in (points, points.where(points < 1, odd)))
        assert_as_eager(made.folder, module, *calls, **_CLOSE)


class _Divisors(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.gcd(a, b), torch.lcm(a, b), torch.gcd(b, a[0])


@pytest.mark.parametrize("target", ["cpu", "metal"])
def test_divisors_of_two_types(target: str, tmp_path: Path) -> None:
    """Of int64 and int32; a number alone takes the other's type."""
    given = torch.tensor([12, 2**40, 0]), torch.tensor([18, -96, 5], dtype=torch.int32)
    made = convert(_Divisors(), given, target=target, out=tmp_path / "out", measure_seconds=0)
    assert_as_eager(made.folder, _Divisors(), (given[0] * 7 - 5, given[1].flip(0) * 3))


class _Asks(nn.Module):
    def __init__(self, question: Callable[[torch.Tensor], bool]) -> None:
        super().__init__()
        self._question = question

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if self._question(x) else x


@pytest.mark.parametrize(
    "question",
    [
        lambda x: torch.equal(x, x + 1),
        lambda x: torch.allclose(x, x + 1),
        lambda x: bool((x > 0).any()),
        lambda x: (x > 0).any().is_nonzero(),
        lambda x: 3.0 in x,
    ],
)
def test_a_branch_on_values_is_refused_by_its_line(
    question: Callable[[torch.Tensor], bool], tmp_path: Path
) -> None:
    """No operator's name alone: the file, and what to write instead."""
    with pytest.raises(
        ExportError, match=r"depends on values of a tensor at \S+\.py:\d+.*torch\.where"
    ):
        convert(_Asks(question), (torch.randn(3),), out=tmp_path / "out", measure_seconds=0)


@pytest.mark.parametrize("target", ["cpu", "metal"])
def test_what_is_no_probability_fails_its_run(target: str, tmp_path: Path) -> None:
    """Eager raises for a prediction or label below 0, above 1, or NaN, alone among good ones."""
    module = nn.Module()
    module.forward = lambda x, y, w: [
        F.binary_cross_entropy(x, y),
        F.binary_cross_entropy(x, y, w, reduction="none"),
    ]
    good = torch.rand(3, 4, generator=_NOISE), torch.rand(3, 4, generator=_NOISE), torch.rand(4)
    convert(module, good, target=target, out=tmp_path / "b", measure_seconds=0)
    ends = (torch.tensor([[0.0, 1, 0, 1]] * 3), *good[1:])
    assert_as_eager(tmp_path / "b", module.forward, ends, **_CLOSE)
    for wrong, number in itertools.product((-1e-6, 1.000001, NAN), (0, 1)):
        given = [each.clone() for each in good]
        given[number][1, 2] = wrong
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            module.forward(*given)
        with pytest.raises(MenagerieError, match="an element is outside 0 to 1"):
            assert_as_eager(tmp_path / "b", lambda *_: (), given)


@pytest.mark.parametrize("target", ["cpu", "metal"])
def test_distances_of_batches_to_rows_that_all_share(target: str, tmp_path: Path) -> None:
    """As to a table of codes, of any number of batches; and of each axis that broadcasts."""

    class Nearest(nn.Module):
        def forward(self, x: torch.Tensor, codes: torch.Tensor) -> list[torch.Tensor]:
            apart = torch.cdist(x, codes)
            return [apart, apart.argmin(-1), torch.cdist(x[:, None], x[None, :2], p=1.0)]

    given, batch = (torch.randn(4, 3, 5), torch.randn(7, 5)), torch.export.Dim("b", min=2, max=6)
    how = {"dynamic_shapes": ({0: batch}, None), "target": target, "out": tmp_path / "b"}
    convert(Nearest(), given, **how, measure_seconds=0)
    calls = ((torch.randn(n, 3, 5), torch.randn(7, 5)) for n in (2, 3, 6))
    assert_as_eager(tmp_path / "b", Nearest(), *calls, **_CLOSE)


@pytest.mark.parametrize("target", ["cpu", "metal"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_scattered_halves_are_rounded_as_often_as_eagers(
    dtype: torch.dtype, target: str, tmp_path: Path
) -> None:
    """Sums of 600 ones: eager has 600, or 256 where it rounds after every addition."""

    def scattered(x: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
        zeros, wide = x.new_zeros(2, 3), i[:, None].expand(x.shape)
        return [
            zeros.scatter_add(0, wide, x),
            *(zeros.scatter_reduce(0, wide, x, how) for how in ("sum", "mean")),
            zeros.index_add(0, i, x),
            zeros.T.index_add(-1, i, x.T),
            x.new_zeros(2, 2, 3).index_add(1, i, x.expand(2, *x.shape)),
            x.new_zeros(2).index_add(0, i, x[:, 0]),
        ][: 7 if target == "cpu" else 5]  # atomics round in an order of their own

    module, n = nn.Module(), torch.export.Dim("n", min=2, max=1200)
    module.forward = scattered
    given, rows = (torch.randn(8, 3, generator=_NOISE).to(dtype), torch.arange(8) % 2), {0: n}
    how = {"dynamic_shapes": (rows, rows), "target": target, "out": tmp_path / "b"}
    convert(module, given, **how, measure_seconds=0)
    ones = torch.ones(1200, 3, dtype=dtype), torch.arange(1200) % 2
    assert_as_eager(tmp_path / "b", scattered, ones)
