"""A squeeze and an excitation are one kernel, with eager's numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.pieces import assert_as_eager
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


def _dispatches(module: nn.Module, *inputs: torch.Tensor) -> dict[str, int]:
    program = torch.export.export(module.eval(), inputs)
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
    calls = x, torch.zeros_like(x), torch.full_like(x, 7.5), unknown, endless
    assert_as_eager(tmp_path / "out", module, *((each,) for each in calls), rtol=1.3e-6, atol=1e-5)


@torch.no_grad()
def test_images_may_have_any_size(tmp_path: Path) -> None:
    """No number of elements becomes the example's."""
    module, x = Excited(20, 7).eval(), torch.randn(2, 20, 6, 5)
    sizes = {2: torch.export.Dim("h", min=2, max=9), 3: torch.export.Dim("w", min=2, max=70)}
    folder = tmp_path / "out"
    convert(module, (x,), target="metal", dynamic_shapes=(sizes,), out=folder, measure_seconds=0)
    calls = ((torch.randn(2, 20, *size),) for size in ((2, 2), (9, 70), (4, 33)))
    assert_as_eager(folder, module, *calls, rtol=1.3e-6, atol=1e-5)


def test_what_one_group_cannot_do_is_left() -> None:
    """Large images are pooled by kernels of their own; large weights are two kernels."""
    found = _dispatches(Excited(8, 4, biases=False), torch.randn(1, 8, 100, 90))
    assert (found["finished_convolution"], found["squeeze"], found["generated"] > 0) == (2, 1, True)
    assert "squeeze" not in _dispatches(Excited(400, 330), torch.randn(1, 400, 2, 2))


class Strided(Excited):
    """Means as timm writes them, and products of images whose channels lie innermost."""

    def forward(self, x: torch.Tensor, image: torch.Tensor) -> object:  # type: ignore[override]
        """(N, channels, H, W) to (N, channels, H, W), and (H, H, 3) to (3, H, H)."""
        x = F.hardswish(self.before(x))
        weights = self.up(F.silu(self.down(x.mean((2, 3), keepdim=True)))).sigmoid()
        return x * weights, image.permute(2, 0, 1) @ image[..., 0]


@torch.no_grad()
def test_halves_of_odd_channels_and_strided_products(tmp_path: Path) -> None:
    """Each of several calls gives eager's numbers: none reads what was copied in part."""
    torch.manual_seed(0)
    module, exact = Strided(17, 5).eval().half(), Strided(17, 5).eval()
    exact.load_state_dict(module.state_dict())
    calls = [(torch.randn(3, 17, 7, 9).half(), torch.randn(160, 160, 3).half()) for _ in range(3)]
    for fill in (0.0, 3.3, torch.nan, torch.inf):
        x, image = (each.clone() for each in calls[0])
        x[1, 4:6], image[20:22, ::3] = fill, fill
        calls += [(x, image), (torch.full_like(x, fill), torch.full_like(image, fill))]
    dispatches = _dispatches(module, *calls[0])
    assert (dispatches["squeeze"], dispatches["bmm_out"]) == (1, 1)
    convert(module, calls[0], target="metal", out=tmp_path / "out", measure_seconds=0)

    def eager(x: torch.Tensor, image: torch.Tensor) -> list[torch.Tensor]:
        return [each.half() for each in exact(x.float(), image.float())]

    assert_as_eager(tmp_path / "out", eager, *calls, rtol=0.02, atol=0.02)
