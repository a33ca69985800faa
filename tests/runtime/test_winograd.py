"""Convolutions of 3 x 3 by Winograd's algorithm: eager's values, whatever the image and its edges."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from image_modules import assert_eagers, assert_threads_agree, bundle_for_images, kernels_noted
from torch import nn

from menagerie.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    platform.machine() not in {"x86_64", "AMD64"}, reason="the kernels of other machines are ours"
)

_SIDES = (12, 40)


class Stack(nn.Module):
    """Convolutions that differ in their padding, their bias and what follows them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 32, 1)
        self.bare = nn.Conv2d(32, 40, 3, bias=False)
        self.rectified = nn.Conv2d(40, 64, 3, padding=1)
        self.gated = nn.Conv2d(64, 32, 3, padding=2)
        self.oblong = nn.Conv2d(32, 48, 3, padding=(2, 0))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """(N, 48, H, W) of an image (N, 3, H, W)."""
        x = self.bare(self.first(image))
        x = torch.relu(self.rectified(x))
        return self.oblong(nn.functional.silu(self.gated(x)))


@pytest.fixture(scope="module")
def stack() -> Stack:
    """With weights of their usual scale."""
    torch.manual_seed(0)
    return Stack().eval()


@pytest.fixture(scope="module")
def bundle(
    tmp_path_factory: pytest.TempPathFactory, bundle_of: Callable[..., Path], stack: Stack
) -> Path:
    """The stack, for images of any of these sizes."""
    return bundle_for_images(tmp_path_factory.mktemp("stack") / "b", bundle_of, stack, _SIDES)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3), st.integers(*_SIDES), st.integers(*_SIDES), st.integers(0, 2**31))
def test_values_are_eagers_whatever_the_image(
    session: Session, stack: Stack, batch: int, height: int, width: int, seed: int
) -> None:
    """Sides that tiles of four do and do not divide, one image or several."""
    image = torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(seed))
    assert_eagers(session, stack, image, rtol=1e-4, atol=2e-5)


def test_the_error_is_of_float32s_size(session: Session, stack: Stack) -> None:
    """Against the truth in float64 it stays within ten times that of eager."""
    image = torch.randn(2, 3, 40, 40)
    with torch.no_grad():
        eager = stack(image)
        truth = stack.double()(image.double())
        stack.float()
    actual = torch.from_numpy(session.run({"image": image.numpy()})["out0"])
    assert (actual - truth).abs().max() <= 10 * (eager - truth).abs().max()


def test_one_thread_and_two_agree_to_the_bit(bundle: Path) -> None:
    """Each tile is computed the same way, by whichever thread."""
    assert_threads_agree(bundle)


def test_all_four_are_computed_by_it(bundle: Path) -> None:
    """As the profile names it; the convolution of 1 x 1 is not."""
    named = kernels_noted(bundle, "(Winograd)")
    assert len(named) == 4
    assert not any("x1x1" in name for name in named)
