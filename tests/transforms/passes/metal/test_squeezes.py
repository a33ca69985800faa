"""A squeeze and an excitation are one kernel, with eager's numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from menagerie.session import Session
from transforms import convert
from transforms.pipeline import explain_program

if TYPE_CHECKING:
    from pathlib import Path


class Excited(nn.Module):
    """A depthwise convolution, whose channels are weighed by their means, and a product."""

    def __init__(self, channels: int, middle: int, *, biases: bool = True) -> None:
        super().__init__()
        self.before = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.down = nn.Conv2d(channels, middle, 1, bias=biases)
        self.up = nn.Conv2d(middle, channels, 1, bias=biases)
        self.after = nn.Conv2d(channels, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, channels, H, W) to (N, 4, H, W)."""
        x = F.hardswish(self.before(x))
        means = F.adaptive_avg_pool2d(x, 1)
        weighed = x * F.hardsigmoid(self.up(F.relu(self.down(means))))
        result: torch.Tensor = self.after(weighed)
        return result


def _dispatches(module: nn.Module, x: torch.Tensor) -> dict[str, int]:
    program = torch.export.export(module.eval(), (x,))
    return explain_program("main", program, target="metal")[1].dispatches


@pytest.mark.parametrize(("channels", "middle", "size"), [(20, 7, 5), (150, 33, 17)])
@torch.no_grad()
def test_a_squeeze_is_one_kernel(tmp_path: Path, channels: int, middle: int, size: int) -> None:
    """Three dispatches in all, and eager's numbers of whatever comes in, each image by itself."""
    module, x = Excited(channels, middle).eval(), torch.randn(2, channels, size, size - 1)
    assert _dispatches(module, x) == {"finished_convolution": 2, "squeeze": 1}
    convert(module, (x,), target="metal", out=tmp_path / "out", measure_seconds=0)
    unknown, endless = x.clone(), x.clone()
    unknown[0, 3, 2, 1], endless[1, 5, 0, 0] = torch.nan, torch.inf
    with Session(tmp_path / "out") as session:
        for given in (x, torch.zeros_like(x), torch.full_like(x, 7.5), unknown, endless):
            [found] = session.run({"x": given.numpy()}).values()
            wanted = module(given)
            torch.testing.assert_close(torch.from_numpy(found), wanted, equal_nan=True)


def test_what_one_group_cannot_do_is_left() -> None:
    """Large images are pooled by kernels of their own; large weights are two kernels."""
    found = _dispatches(Excited(8, 4, biases=False), torch.randn(1, 8, 100, 90))
    assert (found["finished_convolution"], found["squeeze"], found["generated"] > 0) == (2, 1, True)
    assert "squeeze" not in _dispatches(Excited(400, 330), torch.randn(1, 400, 2, 2))
