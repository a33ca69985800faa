"""Images whose size times the factor is their size again are copied, as eager copies them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.pieces import assert_as_eager
from transforms import convert

_NOISE = torch.Generator().manual_seed(1)


class _Resized(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        images, volumes = x[None], x[None, :, None]
        return (
            F.interpolate(x, scale_factor=1.3, mode="linear"),
            F.interpolate(images, scale_factor=(1.4, 1.3), mode="bilinear"),
            F.interpolate(images, scale_factor=(1.4, 1.3), mode="bilinear", align_corners=True),
            F.interpolate(volumes, scale_factor=(2.0, 1.4, 1.3), mode="trilinear"),
            F.interpolate(images, scale_factor=(1.0, 1.3)),
            F.interpolate(images, scale_factor=(1.0, 2.2)),
            F.interpolate(images, size=(x.shape[1], 9), mode="bilinear"),
        )


@pytest.mark.parametrize("target", ["cpu", "metal"])
def test_a_factor_that_leaves_a_dynamic_size_copies(target: str, tmp_path: Path) -> None:
    """2 and 3 times 1.3 are 2 and 3; twice 2, 3 and 4 are eager's sizes for 2.2 as well."""
    width = {2: torch.export.Dim("width", min=1, max=12)}
    given = torch.randn(2, 4, 6, generator=_NOISE)
    bundle = convert(
        _Resized(), (given,), target=target, dynamic_shapes=(width,), out=tmp_path / "out",
        measure_seconds=0,
    )  # fmt: skip
    calls = ((torch.randn(2, 4, wide, generator=_NOISE),) for wide in range(1, 13))
    assert_as_eager(bundle.folder, _Resized(), *calls, rtol=1.3e-6, atol=1e-5)


class _Precise(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        factors = {"scale_factor": (1.0, 1.3), "mode": "bilinear", "align_corners": True}
        return F.interpolate(x[None], **factors)


def test_doubles_keep_their_digits(tmp_path: Path) -> None:
    """Places are computed in the dtype of the images, of which float32 holds half the digits."""
    x = torch.randn(2, 4, 9, generator=_NOISE, dtype=torch.float64)
    bundle = convert(_Precise(), (x,), out=tmp_path / "out", measure_seconds=0)
    assert_as_eager(bundle.folder, _Precise(), (x * 3,), rtol=1e-12, atol=1e-12)


class _Smooth(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x[None], scale_factor=1.3, mode="bicubic", antialias=True)


@pytest.mark.parametrize("sizes", [[2, 4, 3], [2, 8, 1]])
def test_a_factor_that_leaves_a_size_copies_with_antialiasing(
    sizes: list[int], tmp_path: Path
) -> None:
    """Also of one fixed size; one column as two equal ones, since eager repeats its first pixel."""
    x = torch.randn(sizes, generator=_NOISE)
    bundle = convert(_Smooth(), (x,), out=tmp_path / "out", measure_seconds=0)
    wanted = _Smooth()(x if x.shape[2] > 1 else x.expand(2, 8, 2))[..., : x.shape[2]]
    assert_as_eager(bundle.folder, lambda _: wanted, (x,), rtol=1.3e-6, atol=1e-5)
