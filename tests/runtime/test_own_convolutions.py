"""Convolutions by kernels of our own on x86-64: eager's values with AVX-512 and without."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from image_modules import assert_eagers, assert_threads_agree, bundle_for_images, kernels_noted
from lesser_processor import assert_passes_without_avx512, not_on_lesser
from torch import nn

from menagerie.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    platform.machine() not in {"x86_64", "AMD64"}, reason="the kernels are for x86-64"
)

_SIDES = (3, 40)


class Activated(nn.Module):
    """A convolution with what follows it."""

    def __init__(self, inner: nn.Module, activation: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.inner = inner
        self.activation = activation

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """As wide as the convolution makes it."""
        return self.activation(self.inner(image))


class Stack(nn.Module):
    """Blocks as mobile networks have them; channels fill vectors of 8 and 16 nowhere."""

    def __init__(self) -> None:
        super().__init__()
        silu = F.silu
        self.first = nn.Conv2d(3, 19, 1)
        self.wide = Activated(nn.Conv2d(19, 77, 1, bias=False), silu)
        self.slid = Activated(nn.Conv2d(77, 77, 3, padding=1, groups=77), silu)
        self.far = Activated(nn.Conv2d(77, 77, 5, padding=4, dilation=2, groups=77), torch.sigmoid)
        self.apart = Activated(
            nn.Conv2d(77, 77, (5, 3), stride=2, padding=(2, 1), groups=77, bias=False), silu
        )
        self.narrow = nn.Conv2d(77, 24, 1)
        self.again = nn.Conv2d(24, 24, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """(N, 24, H / 2, W / 2), rounded up, of an image (N, 3, H, W)."""
        x = self.far(self.slid(self.wide(self.first(image))))
        x = self.narrow(self.apart(x))
        return x + F.silu(self.again(x))


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
    folder = tmp_path_factory.mktemp("stack") / "stack"
    return bundle_for_images(folder, bundle_of, stack, _SIDES)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3), st.integers(*_SIDES), st.integers(*_SIDES), st.integers(0, 2**31))
def test_values_are_eagers_whatever_the_image(
    session: Session, stack: Stack, batch: int, height: int, width: int, seed: int
) -> None:
    """Images down to three pixels, of whose windows most are outside."""
    image = 3 * torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(seed))
    assert_eagers(session, stack, image, rtol=1e-5, atol=1e-5)


def test_one_thread_and_two_agree_to_the_bit(bundle: Path) -> None:
    """Each result is summed up in one order, by whichever thread."""
    assert_threads_agree(bundle)


def test_the_profile_says_which_are_our_own(bundle: Path) -> None:
    """Those with an exponential, and the narrow one; not the first, which the library is faster at.

    One of 1 x 1 and the depthwise one behind it are one call.
    """
    own = set(kernels_noted(bundle, "(own kernel)"))
    assert len(own) == 5
    assert not any("19x3x1x1" in name for name in own)


_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda x: x,
    "relu": torch.relu,
    "relu6": F.relu6,
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "tanh": torch.tanh,
    "gelu": F.gelu,
}


class Few(nn.Module):
    """Products so small that all are ours, of channels that are apart in their memory."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 12, 1, bias=False)
        nn.init.ones_(self.first.weight)
        outs = range(9, 9 + 5 * len(_ACTIVATIONS), 5)
        self.each = nn.ModuleList(
            Activated(nn.Conv2d(7, out, 1), function)
            for out, function in zip(outs, _ACTIVATIONS.values(), strict=True)
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """(N, all channels, H, W) of an image (N, 1, H, W)."""
        part = self.first(image)[:, 5:]
        return torch.cat([layer(part) for layer in self.each], 1)


@pytest.fixture(scope="module")
def few() -> Few:
    """With weights of their usual scale behind the first layer."""
    torch.manual_seed(1)
    return Few().eval()


@pytest.fixture(scope="module")
def few_bundle(
    tmp_path_factory: pytest.TempPathFactory, bundle_of: Callable[..., Path], few: Few
) -> Path:
    """For images of up to 40 pixels."""
    return bundle_of(
        tmp_path_factory.mktemp("few") / "few",
        few,
        {"image": torch.randn(1, 1, 3, 5)},
        {"height": (2, 5, 1), "width": (2, 8, 1)},
        {"image": (1, 1, "height", "width")},
    )


@pytest.fixture(scope="module")
def few_session(few_bundle: Path) -> Iterator[Session]:
    """On one thread."""
    with Session(few_bundle, threads=1) as opened:
        yield opened


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 5), st.integers(2, 8), st.floats(0.1, 50), st.integers(0, 2**31))
def test_small_products_end_with_each_activation(
    few_session: Session, few: Few, height: int, width: int, scale: float, seed: int
) -> None:
    """Also far out, where an exponential is zero or beyond all floats."""
    generator = torch.Generator().manual_seed(seed)
    image = scale * torch.randn(1, 1, height, width, generator=generator)
    assert_eagers(few_session, few, image, rtol=1e-5, atol=1e-5)


def test_nan_and_infinity_spread_as_in_eager(few_session: Session, few: Few) -> None:
    """Over all channels of their own pixel, and no further."""
    image = torch.tensor([np.nan, np.inf, -np.inf, 1e30, -1e30, 0.0, 1e-38, -1.0])
    image = image.reshape(1, 1, 2, 4)
    assert_eagers(few_session, few, image, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_activations_far_below_zero_are_zero(few_session: Session, few: Few) -> None:
    """SiLU of -1e37, too; sums of seven such numbers cancel, hence the tolerance."""
    image = torch.tensor([1e37, -1e37, 1e34, -1e34]).reshape(1, 1, 2, 2)
    assert_eagers(few_session, few, image, rtol=1e-4, atol=1e-6)


@not_on_lesser
@pytest.mark.sweep
def test_all_of_it_holds_without_avx512(bundle: Path, few_bundle: Path) -> None:
    """The same tests in a process that may use AVX2 alone."""
    assert_passes_without_avx512(__file__, {"stack": bundle, "few": few_bundle})
