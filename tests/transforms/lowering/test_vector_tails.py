"""Reductions whose rows end within a vector, of every dtype, by values that show stray lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import menagerie
from tests.pieces import assert_as_eager
from transforms import convert

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from torch import Tensor

SIZES = (9, 20)
DTYPES = (torch.uint8, torch.int8, torch.bool, torch.float32)

_REDUCTIONS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "amax": lambda x, d: x.amax(d),
    "amin": lambda x, d: x.amin(d),
    "place of max": lambda x, d: x.max(d).indices,
    "place of min": lambda x, d: x.min(d).indices,
    "any": lambda x, d: x.any(d),
    "all": lambda x, d: x.all(d),
    "sum": lambda x, d: x.sum(d),
    "max of a mask": lambda x, d: (x == 1).to(torch.uint8).amax(d),
    "min of a mask": lambda x, d: (x == 0).to(torch.int8).amin(d),
    "place in a mask": lambda x, d: (x == 1).to(torch.uint8).argmax(d),
}
_NARROW: dict[str, Callable[[Tensor, int], Tensor]] = {
    "sum as it is": lambda x, d: x.sum(d, dtype=x.dtype),
    "product": lambda x, d: x.prod(d, dtype=x.dtype),
    "scaled max": lambda x, d: x.amax(d).float() * 2.5,
}


def _reductions(dtype: torch.dtype) -> dict[str, Callable[[Tensor, int], Tensor]]:
    return _REDUCTIONS | (_NARROW if dtype in (torch.uint8, torch.int8) else {})


class _Reduced(nn.Module):
    """Every reduction of every input, along rows, along columns and of its transpose."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.reductions = _reductions(dtype)

    def forward(self, *inputs: Tensor) -> dict[str, Tensor]:
        """The results by reduction, size and axis."""
        return {
            f"{name} of {x.shape[1]} along {axis}": reduce(x, axis)
            for name, reduce in self.reductions.items()
            for x in inputs
            for axis in (0, 1)
        }


def _fills(shape: tuple[int, int], dtype: torch.dtype) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(1)
    if dtype == torch.bool:
        yield torch.rand(shape, generator=generator) > 0.5
        extremes: list[float] = [0, 1]
    elif dtype.is_floating_point:
        yield torch.randn(shape, generator=generator).to(dtype)
        yield -1 - torch.rand(shape, generator=generator).to(dtype)
        extremes = [0, -3, float("-inf"), float("inf"), float("nan"), torch.finfo(dtype).min]
    else:
        least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        yield torch.randint(least, most, shape, generator=generator).to(dtype)
        yield torch.randint(least, least + 100, shape, generator=generator).to(dtype)
        yield torch.randint(0, 2, shape, generator=generator).to(dtype)  # ties
        extremes = [0, 1, least, most]
    for extreme in extremes:
        yield torch.full(shape, extreme, dtype=dtype)
        last = torch.full(shape, extreme, dtype=dtype)
        last.view(-1)[-1] = 1
        yield last


@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(d, id=str(d), marks=[pytest.mark.sweep] * (d is not torch.uint8))
        for d in DTYPES
    ],
)
def test_no_lane_behind_a_row_counts(dtype: torch.dtype, tmp_path: Path) -> None:
    """Reductions of any dtype are eager's bit by bit (sums of floats: to 1e-3) for any values."""
    module = _Reduced(dtype)
    values = [[*_fills((size - 2, size), dtype)] for size in SIZES]
    with torch.no_grad():
        given = tuple(each[0] for each in values)
        bundle = convert(module, given, out=tmp_path / "reduced", measure_seconds=0)
        with menagerie.open(bundle.folder) as session:
            names = [each.name for each in session.inputs]
            for inputs in zip(*values, strict=True):
                results = session.run(
                    {n: x.numpy() for n, x in zip(names, inputs, strict=True)}
                ).values()
                for (name, want), found in zip(module(*inputs).items(), results, strict=True):
                    close = 1e-3 if name.startswith("sum") and dtype.is_floating_point else 0
                    np.testing.assert_allclose(found, want.numpy(), close, close, err_msg=name)


def test_tiles_and_rows_of_integers(tmp_path: Path) -> None:
    """A comparison stored transposed, its neighbours, padded rows, and numbers that wrap around."""

    class Compared(nn.Module):
        def forward(self, a: Tensor, b: Tensor, i: Tensor) -> tuple[Tensor, ...]:
            padded = (F.pad(x, (0, 0, 1, 2)) for x in (a > b, a.int() // (b + 1).int()))
            wrapped = i[:, None] * torch.arange(1, 4).int() - 20
            return (a == b).t().contiguous(), a + b, *padded, wrapped.argmin(-1)

    generator = torch.Generator().manual_seed(3)
    values = (torch.randint(0, 2, (24, 20), generator=generator) for _ in range(2))
    lowest = torch.full((3,), -(2**31), dtype=torch.int32)
    given = (*(each.to(torch.uint8) for each in values), lowest)
    bundle = convert(Compared(), given, out=tmp_path / "tile", measure_seconds=0)
    assert_as_eager(bundle.folder, Compared(), given)


class _Windows(nn.Module):
    def forward(self, x: torch.Tensor, whole: torch.Tensor) -> tuple[torch.Tensor, ...]:
        steps = F.max_pool2d(whole, (3, 5), 1, (1, 2), dilation=2, return_indices=True)
        line = F.max_pool1d(x[0], 3, 1, 1, return_indices=True)
        return *F.max_pool2d(x, 3, 2, 1, return_indices=True), *line, *steps


@pytest.mark.parametrize("target", ["cpu", pytest.param("metal", marks=pytest.mark.sweep)])
def test_a_window_of_lowest_numbers_has_its_maximum_inside(target: str, tmp_path: Path) -> None:
    """Padding is the type's lowest number too: of equal ones eager takes the first of the input."""
    x = torch.randn(1, 2, 9, 12)
    inputs, sizes = (x, (x * 50).to(torch.int8)), {2: torch.export.Dim("height", min=6, max=20)}
    module, out = _Windows(), tmp_path / "pooled"
    convert(
        module, inputs, dynamic_shapes=(sizes, sizes), target=target, out=out, measure_seconds=0
    )
    lows = (torch.full((1, 2, 7, 12), -torch.inf), torch.full((1, 2, 7, 12), -128).to(torch.int8))
    mixed = [torch.where(x[:, :, :7] < 1, low, 1).to(low.dtype) for low in lows]
    assert_as_eager(out, module, lows, mixed)


class _Shortcuts(nn.Module):
    """What Inductor by itself writes without a rounding, and with another dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.ones(1).half())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rounded = x.half().float() * self.get_buffer("cache")
        places = torch.ones(2, x.shape[0], dtype=torch.uint8).cumsum(1, dtype=torch.uint8)
        least = (x.clamp(0, 1) * -32768).to(torch.int16).abs().float()
        return (
            least,
            rounded,
            (rounded * 0.1).half(),
            x.bfloat16().float() > 1.0,
            places,
            places * x,
        )


@pytest.mark.parametrize("target", [pytest.param("cpu", marks=pytest.mark.sweep), "metal"])
def test_casts_round_and_positions_keep_their_dtype(target: str, tmp_path: Path) -> None:
    """A cast to half and back is eager's, overflow too; bytes that count places wrap."""
    sizes, out = {0: torch.export.Dim("n", min=2, max=400)}, tmp_path / "cast"
    module = _Shortcuts()
    convert(
        module, (torch.randn(5),), dynamic_shapes=(sizes,), target=target, out=out,
        measure_seconds=0,
    )  # fmt: skip
    others = (torch.full((300,), 1.001), torch.full((4,), 7e4), torch.linspace(0, 2, 260))
    assert_as_eager(out, module, *((x,) for x in others))


class _Decisions(nn.Module):
    """Integers and comparisons, which another last bit of a half would change."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total = x.sum(-1, keepdim=True)
        near = (total * 0.3 + x, x.softmax(-1) * 7, x.mean(0) * 33, F.layer_norm(x, (16,)) * 5)
        return (
            (x + 1 - 1) == x,
            (x * 127).round().clamp(-128, 127).to(torch.int8),
            torch.bucketize((x * 2 + 1).float(), torch.linspace(-3, 3, 13)),
            torch.remainder(x * 3, 0.5),
            (x.sigmoid() * 3 + x).argmax(-1),
            torch.sort(x * x - x, dim=-1, stable=True).indices,
            *(each.floor() for each in near),
            torch.where(x.tanh() * 0.3 > (x * 0.3).tanh(), 1, 0),
        )


@pytest.mark.parametrize(
    ("target", "dtype"),
    [
        ("cpu", torch.bfloat16),
        ("metal", torch.float16),
        pytest.param("cpu", torch.float16, marks=pytest.mark.sweep),
        pytest.param("metal", torch.bfloat16, marks=pytest.mark.sweep),
    ],
)
def test_what_halves_decide_is_decided_as_eager_does(
    target: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    """Each operator's result is rounded, also where the next one is computed beside it."""
    module, out = _Decisions(), tmp_path / "out"
    convert(module, (torch.randn(5, 16).to(dtype),), target=target, out=out, measure_seconds=0)
    scaled = ((torch.randn(5, 16) * scale).to(dtype) for scale in (0.1, 1, 10, 100))
    assert_as_eager(out, module, *((x,) for x in scaled))
