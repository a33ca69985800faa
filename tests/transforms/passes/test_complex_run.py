"""Artifacts with complex numbers equal eager for numbers of any size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import menagerie
from tests.pieces import Apply, assert_as_eager
from transforms import convert

if TYPE_CHECKING:
    from pathlib import Path


class _Complex(nn.Module):
    """Magnitudes and quotients, and real tensors that meet complex numbers of Python."""

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        z = torch.complex(x, x.flip(0))
        scaled = [z / (z + 1), 1 / (z + 2), x / (1 + 2j), x * 2j, 1j - x]
        scaled += [torch.complex(x, x * 0 + 1) + torch.complex(x * 0 + 1, x.flip(1))]
        return [z.abs(), torch.exp(1j * x).real, *map(torch.view_as_real, scaled)]


class _Moved(nn.Module):
    """Complex numbers that are made, moved, cast, masked, averaged and multiplied as matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(10, 4, dtype=torch.complex64)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        z, whole = torch.complex(x, x.flip(0)), torch.zeros(3, 8, dtype=torch.complex64)
        whole[:, :5] = z[:, :5] * 2  # as a Fourier neural operator does
        made = [
            torch.fft.fftshift(z), torch.fft.ifftshift(z, dim=-1), z.roll(3, 1),
            z.unfold(1, 4, 3), whole, z.new_ones(3, 10) + z, torch.where(x > 0, z, 0),
            torch.where(x > 0, 1j, z), z.to(torch.complex128).cfloat(), z.mean(0), z @ z[0],
            self.linear(z), z * torch.full((10,), 2j),
        ]  # fmt: skip
        numbers = [f(n, 3.0) for n in (9, 10) for f in (torch.fft.fftfreq, torch.fft.rfftfreq)]
        return [*map(torch.view_as_real, made), *numbers]


@pytest.mark.parametrize(("kind", "scales"), [(_Complex, (1, 1e-25, 1e25)), (_Moved, (1, 0))])
def test_complex_numbers_equal_eager(kind: type[nn.Module], scales: Any, tmp_path: Path) -> None:
    """A magnitude of 1e-25 is not 0, a quotient near 1e25 is a number, NaN spreads as in eager."""
    torch.manual_seed(0)
    module, x = kind().eval(), torch.randn(3, 10)
    bundle = convert(module, (x,), out=tmp_path / "complex", measure_seconds=0)
    with menagerie.open(bundle.folder) as session, torch.no_grad():
        for given in (*(x * scale for scale in scales), torch.where(x > 1, torch.nan, x)):
            results = session.run({"x": given.numpy()}).values()
            for expected, result in zip(module(given), results, strict=True):
                made, scale = torch.from_numpy(result), expected.nan_to_num(0, 0, 0).abs().max()
                torch.testing.assert_close(
                    made, expected, rtol=1e-4, atol=1e-5 * scale.item(), equal_nan=True
                )


@pytest.mark.parametrize("target", ["cpu", "metal"])
def test_roots_neither_cancel_nor_overflow(target: str, tmp_path: Path) -> None:
    """Of each sign, at ends and near an axis; -1 - 0i and its sine are below the real axis."""
    whole, planes = torch.view_as_complex, torch.view_as_real
    roots = Apply(lambda x: [planes(z.sqrt()) for z in (whole(x), whole(x).sinh())])
    convert(roots, (torch.randn(7, 2),), target=target, out=tmp_path / "b", measure_seconds=0)
    ends = (-torch.inf, -3e38, -4.0, -1e-8, 0.0, 1.0, torch.inf)
    pairs = torch.tensor([[a, b] for a in ends for b in (*ends, torch.nan, -0.0)]).split(7)
    assert_as_eager(tmp_path / "b", roots, *((each,) for each in pairs), rtol=1e-5, atol=1e-38)


def _functions(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    z, w = torch.view_as_complex(x), torch.view_as_complex(y)
    made = [z / w, z.reciprocal(), z.exp(), z.sin(), z.cos()]
    made += [z.sinh(), z.cosh(), z.tanh(), z.tan(), z.expm1()]
    return [*map(torch.view_as_real, [*made, z**0.5, z**3, z**-2.0])]


@pytest.mark.parametrize("target", ["cpu", "metal"])
def test_functions_are_eagers_at_ends(target: str, tmp_path: Path) -> None:
    """An exponential that overflows has no NaN beside it; a number by infinity is 0."""
    example, module = (torch.randn(7, 2), torch.randn(7, 2)), nn.Module()
    module.forward = _functions
    made = convert(module, example, target=target, out=tmp_path / "b", measure_seconds=0)
    ends = (-torch.inf, -2.0, 0.0, 1.0, 100.0, torch.inf, torch.nan)
    z = torch.tensor([[a, b] for a in ends for b in (*ends[:4], 3.0, *ends[5:], 0.5)])
    calls = [(part, other) for n in (0, 5, 14) for part, other in
             zip(z.split(7), z.roll(n, 0).split(7), strict=True)]  # fmt: skip
    assert_as_eager(made.folder, _functions, *calls, rtol=1e-5, atol=1e-6)


def test_zeros_of_functions_have_eagers_signs(tmp_path: Path) -> None:
    """Beside the axes, where one part is a product with a zero of either sign."""
    functions, ends = (torch.sin, torch.cos, torch.sinh, torch.cosh), (0.0, -0.0, 2.0, -2.0)
    module = Apply(
        lambda x: [1 / torch.view_as_real(f(torch.view_as_complex(x))) for f in functions]
    )
    convert(module, (torch.randn(16, 2),), out=tmp_path / "b", measure_seconds=0)
    x = torch.tensor([[a, b] for a in ends for b in ends])
    assert_as_eager(tmp_path / "b", module, (x,), rtol=1e-5)
