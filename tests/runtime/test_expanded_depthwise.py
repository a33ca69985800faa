"""A depthwise convolution that is computed with the one before it has eager's values."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from image_modules import assert_eagers, assert_threads_agree, bundle_for_images, kernels_noted
from lesser_processor import assert_passes_without_avx512, not_on_lesser
from torch import nn

from menagerie.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SIDES = (5, 48)
_WIDE = 811  # channels: of 40 x 40 places more than 4 MiB; they fill vectors nowhere


def _block(activation: nn.Module, window: int | tuple[int, int], **how: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(7, _WIDE, 1),
        nn.ReLU6(),
        nn.Conv2d(_WIDE, _WIDE, window, groups=_WIDE, **how),
        activation,
        nn.Conv2d(_WIDE, 5, 1),
    )


class Windows(nn.Module):
    """An expansion by larger windows, whose rows are multiplied by factors of some kind or none."""

    def __init__(self, rows: str, expansion: nn.Conv2d, activation: nn.Module, **how: int) -> None:
        super().__init__()
        self.rows = rows
        self.expansion, self.activation = expansion, activation
        wide = expansion.out_channels
        self.slide = nn.Conv2d(wide, wide, 3, groups=wide, **how)
        self.last = nn.Conv2d(wide, 3, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Of the first channels of an image."""
        wide = self.expansion(image[:, : self.expansion.in_channels])
        places = torch.arange(wide.shape[2])
        if self.rows == "mask":  # three rows of some images are kept, eight of others
            kept = 3 + 5 * (image[:, 0, 0, 0] > 0)
            wide *= (places < kept[:, None])[:, None, :, None]
        elif self.rows == "factors":
            wide = torch.cos(places * 0.7)[None, None, :, None] * wide
        return self.last(self.slide(self.activation(wide)))


def _windows() -> nn.ModuleList:
    steps: dict[str, Any] = {"stride": (2, 1), "padding": (1, 2)}
    far: dict[str, Any] = {"padding": (4, 3), "dilation": (2, 3)}
    return nn.ModuleList(
        [
            Windows("none", nn.Conv2d(3, _WIDE, (1, 5), padding=(0, 2)), nn.SiLU(), padding=1),
            Windows("mask", nn.Conv2d(1, 2 * _WIDE, 3, **steps), nn.ReLU(), padding=1, stride=2),
            Windows("factors", nn.Conv2d(2, _WIDE, (3, 2), **far), nn.SiLU(), dilation=2),
            Windows("mask", nn.Conv2d(3, _WIDE, 1), nn.Hardswish(), padding=2),
        ]
    )


class Blocks(nn.Module):
    """Windows of all kinds behind an expansion each."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 7, 1)
        self.blocks = nn.ModuleList(
            [
                _block(nn.ReLU6(), 3, padding=1),
                _block(nn.SiLU(), 5, padding=2, stride=2),
                _block(nn.Hardswish(), (3, 2), padding=4, dilation=3),
                _block(nn.ReLU(), 2, padding=2, stride=4),
            ]
        )
        self.blocks[1][0] = nn.Conv2d(7, _WIDE, 1, bias=False)
        self.windows = _windows()

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """The mean over places of each block's result, side by side."""
        x = torch.relu(self.first(image))
        made = [block(x) for block in self.blocks] + [block(image) for block in self.windows]
        return torch.cat([*(each.mean((2, 3)) for each in made), *_extremes(made)], 1)


def _extremes(made: list[torch.Tensor]) -> list[torch.Tensor]:
    return [extreme(each, (2, 3)) for each in made for extreme in (torch.amax, torch.amin)]


@pytest.fixture(scope="module")
def blocks() -> Blocks:
    """With weights of their usual scale."""
    torch.manual_seed(0)
    return Blocks().eval()


@pytest.fixture(scope="module")
def bundle(
    tmp_path_factory: pytest.TempPathFactory, bundle_of: Callable[..., Path], blocks: Blocks
) -> Path:
    """The blocks, for images of any of these sizes."""
    folder = tmp_path_factory.mktemp("blocks") / "blocks"
    return bundle_for_images(folder, bundle_of, blocks, _SIDES)


@pytest.mark.parametrize(
    ("batch", "height", "width"),
    [(1, 48, 48), (1, 48, 31), (3, 29, 37), (2, 41, 40), (3, 48, 17), (1, 5, 5), (2, 9, 48)],
)
def test_values_are_eagers_near_the_cache_and_far(
    session: Session, blocks: Blocks, batch: int, height: int, width: int
) -> None:
    """Expanded images of 80 kB to 22 MB, some of which are never stored."""
    image = torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(height))
    assert_eagers(session, blocks, image, rtol=1e-5, atol=1e-5)


def test_one_thread_and_two_agree_to_the_bit(bundle: Path) -> None:
    """Rows that two threads' bands reach are computed alike."""
    assert_threads_agree(bundle)


@pytest.mark.skipif(
    platform.machine() not in {"x86_64", "AMD64"}, reason="other processors compute one by one"
)
def test_the_profile_says_what_was_computed_together(bundle: Path) -> None:
    """Of all blocks with images of 40 x 40: both weights are named."""
    named = kernels_noted(bundle, "expanded_depthwise 1x")
    assert sum("1x7x40x40 by 811x7x1x1 by 811x1x" in kernel for kernel in named) == 4
    for weight in ("811x3x1x5", "1622x1x3x3", "811x2x3x2", "811x3x1x1"):
        assert any(f"40x40 by {weight} by " in kernel for kernel in named), (weight, named)


def test_nan_spreads_as_far_as_windows_do(session: Session, blocks: Blocks) -> None:
    """Into every result, as in eager; of rows that are multiplied by zero, too."""
    image = torch.zeros(1, 3, 45, 45)
    image[0, :2, 20, 20] = np.nan
    assert_eagers(session, blocks, image, rtol=1e-5, atol=1e-5, equal_nan=True)


@not_on_lesser
@pytest.mark.sweep
def test_all_of_it_holds_without_avx512(bundle: Path) -> None:
    """The same tests in a process that may use AVX2 alone."""
    assert_passes_without_avx512(__file__, {"blocks": bundle})
