"""A depthwise convolution that is computed with the one of 1 x 1 before it has eager's values."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from image_modules import assert_eagers, assert_threads_agree, bundle_for_images, kernels_noted
from lesser_processor import assert_passes_without_avx512, not_on_lesser
from torch import nn

from menagerie.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """The mean over places of each block's result, one beside the other."""
        x = torch.relu(self.first(image))
        return torch.cat([block(x).mean((2, 3)) for block in self.blocks], 1)


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
    return bundle_for_images(tmp_path_factory.mktemp("blocks"), bundle_of, blocks, _SIDES)


@pytest.fixture(scope="module")
def session(bundle: Path) -> Iterator[Session]:
    """On two threads."""
    with Session(bundle, threads=2) as opened:
        yield opened


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
    named = kernels_noted(bundle, "expanded_depthwise 1x7x40x40 by 811x7x1x1 by 811x1x")
    assert len(named) == 4


def test_nan_spreads_as_far_as_windows_do(session: Session, blocks: Blocks) -> None:
    """Into every mean, as in eager."""
    image = torch.zeros(1, 3, 45, 45)
    image[0, 1, 20, 20] = np.nan
    assert_eagers(session, blocks, image, rtol=1e-5, atol=1e-5, equal_nan=True)


@not_on_lesser
def test_all_of_it_holds_without_avx512() -> None:
    """The same tests in a process that may use AVX2 alone."""
    assert_passes_without_avx512(__file__)
