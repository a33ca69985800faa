"""What tests of convolution kernels have in common: a module over images, its bundle, eager's values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from menagerie.profile import profile
from menagerie.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import nn


def bundle_for_images(
    folder: Path, bundle_of: Callable[..., Path], module: nn.Module, sides: tuple[int, int]
) -> Path:
    """A bundle of the module, for one to three images of three channels with any such sides."""
    return bundle_of(
        folder,
        module,
        {"image": torch.randn(2, 3, 24, 16)},
        {"batch": (1, 3, 1), "height": (*sides, 1), "width": (*sides, 1)},
        {"image": ("batch", 3, "height", "width")},
    )


def assert_eagers(session: Session, module: nn.Module, image: torch.Tensor, **close: Any) -> None:
    """The session's result of an image is close to eager's, as torch.testing takes it."""
    with torch.no_grad():
        expected = module(image)
    actual = torch.from_numpy(session.run({"image": image.numpy()})["out0"])
    torch.testing.assert_close(actual, expected, **close)


def assert_threads_agree(bundle: Path) -> None:
    """One thread and two give the same bits."""
    image = np.random.default_rng(0).standard_normal((3, 3, 33, 29)).astype(np.float32)
    results = []
    for threads in (1, 2):
        with Session(bundle, threads=threads) as opened:
            results.append(opened.run({"image": image})["out0"])
    assert np.array_equal(*results)


def kernels_noted(bundle: Path, note: str) -> list[str]:
    """The kernels of a run that the profile shows with that note."""
    image = np.zeros((1, 3, 40, 40), np.float32)
    with Session(bundle, threads=1) as opened:
        found = profile(opened, lambda: opened.run({"image": image}), threads=1, seconds=0.0)
    return [kernel.kernel for kernel in found.kernels if note in kernel.kernel]
