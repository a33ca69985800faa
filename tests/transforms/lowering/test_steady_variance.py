"""Norms, variances and deviations of rows that are constant, far from 0, tiny or huge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import menagerie
from tests.pieces import Apply, assert_as_eager
from transforms import convert

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

WIDTHS = (7, 768, 1500)
TARGETS = ("cpu", "metal")


class _Statistics(nn.Module):
    def forward(self, *rows: Tensor) -> dict[str, Tensor]:
        results: dict[str, Tensor] = {}
        for x in rows:
            width = x.shape[1]
            named = {
                "layer_norm": F.layer_norm(x, (width,), eps=1e-12),
                "group_norm": F.group_norm(x[:, :, None], 1, eps=1e-12),
                "instance_norm": F.instance_norm(x[:, None], eps=1e-12),
                "batch_norm": F.batch_norm(x.t(), None, None, training=True),
                "var": x.var(1),
                "var_mean": torch.var_mean(x, 1)[0],
                "std": x.std(1),
                "all_std": x.std(),
                "std_mean": torch.std_mean(x, 1, keepdim=True)[0],
            }
            results |= {f"{name}_{width}": value for name, value in named.items()}
        return results


@pytest.fixture(scope="module", params=["cpu", pytest.param("metal", marks=pytest.mark.sweep)])
def statistics(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of one program with all of them at several widths."""
    torch.manual_seed(0)
    rows = tuple(torch.randn(4, width) for width in WIDTHS)
    folder = tmp_path_factory.mktemp("bundle") / "statistics"
    with torch.no_grad():
        return convert(
            _Statistics(), rows, target=request.param, out=folder, measure_seconds=0
        ).folder


def _run(bundle: Path, rows: list[Tensor]) -> dict[str, np.ndarray]:
    with menagerie.open(bundle) as session:
        feed = {i.name: x.numpy() for i, x in zip(session.inputs, rows, strict=True)}
        names = _Statistics()(*rows)
        return dict(zip(names, session.run(feed).values(), strict=True))


def test_constant_rows_have_no_variance(statistics: Path) -> None:
    """Every norm of a row of one number is 0, and so are its variance and its deviation."""
    for value in (3.3, -7.7, 1e4, 1e-20, 0.1, 1e19, -1e25):
        rows = [torch.full((4, width), value) for width in WIDTHS]
        for name, result in _run(statistics, rows).items():
            np.testing.assert_array_equal(result, 0, err_msg=f"{name} of {value}")


def test_deviations_neither_overflow_nor_vanish(statistics: Path) -> None:
    """`std` is that of float64 where squares of float32 would be infinite or 0."""
    torch.manual_seed(1)
    for scale in (1e-42, 1e-30, 1e-25, 1e-13, 1e15, 1e20, 1e37):
        rows = [torch.randn(4, width).double().mul(scale).float() for width in WIDTHS]
        want = _Statistics()(*(x.double() for x in rows))
        for name, result in _run(statistics, rows).items():
            if "std" in name:
                expected = want[name].numpy()
                np.testing.assert_allclose(result, expected, 1e-4, 2e-45, err_msg=f"{name} {scale}")


def test_far_rows_keep_their_variance(statistics: Path) -> None:
    """Rows far from 0 have the variance that float64 gives their numbers."""
    torch.manual_seed(2)
    rows = [torch.randn(4, width) + 4096 for width in WIDTHS]
    want = _Statistics()(*(x.double() for x in rows))
    for name, result in _run(statistics, rows).items():
        np.testing.assert_allclose(result, want[name].numpy(), 2e-3, 2e-3, err_msg=name)


@pytest.mark.parametrize("target", ["cpu", pytest.param("metal", marks=pytest.mark.sweep)])
def test_one_number_has_the_variance_of_eager(target: str, tmp_path: Path) -> None:
    """0, or NaN where it is NaN or infinite."""
    alone = Apply(lambda x: (x.var(1, unbiased=False) + x.mean(1), x[0, 0].std(unbiased=False)))
    convert(alone, (torch.randn(4, 1),), target=target, out=tmp_path / "b", measure_seconds=0)
    x = torch.tensor([[torch.nan], [torch.inf], [-torch.inf], [3.0]])
    assert_as_eager(tmp_path / "b", alone, (x,), (x.flip(0),))
