"""Products with far weights and convolutions of sequences by kernels of our own: eager's values."""

from __future__ import annotations

import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from lesser_processor import assert_passes_without_avx512, not_on_lesser
from torch import nn

from menagerie.profile import profile
from menagerie.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(
    platform.machine() not in {"x86_64", "AMD64"}, reason="the kernels are for x86-64"
)

_WIDTH, _WIDER = 1030, 1500  # neither fills panels of columns, nor squares of the packing
_LENGTHS = (1, 700)
_BLOCKS = (2, 700, _WIDTH)  # so many rows that threads pack several blocks of them
_SAMPLES = (400, 3000)
_NOTE = "(own kernel)"


class Layers(nn.Module):
    """Linear layers with too many weights for the second-level cache, stored by rows and columns.

    The last one has few, and a sigmoid.
    """

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(_WIDTH, _WIDER)
        self.narrow = nn.Linear(_WIDER, _WIDTH, bias=False)
        self.turned = nn.Parameter(torch.randn(_WIDTH, _WIDER) / _WIDTH**0.5)
        self.last = nn.Linear(_WIDER, 21)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """(N, L, 21) of rows (N, L, 1030)."""
        hidden = F.gelu(self.wide(rows))
        return torch.sigmoid(self.last(F.silu(self.narrow(hidden)) @ self.turned))


class Windows(nn.Module):
    """Convolutions of samples as speech models begin with, whose windows overlap or have gaps."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 24, 10, stride=5)
        self.second = nn.Conv1d(24, 41, 3, stride=2, bias=False)
        self.third = nn.Conv1d(41, 17, 2, stride=1)
        self.last = nn.Conv1d(17, 33, 2, stride=3)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """(N, 33, about a thirtieth) of samples (N, 1, samples)."""
        x = self.third(F.silu(self.second(F.gelu(self.first(rows)))))
        return torch.relu(self.last(x))


def _made(module: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return module().eval()


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory, bundle_of: Callable[..., Path]) -> Path:
    """For up to three batches of these lengths."""
    return bundle_of(
        tmp_path_factory.mktemp("layers") / "layers",
        _made(Layers),
        {"rows": torch.randn(2, 40, _WIDTH)},
        {"batch": (1, 3, 1), "length": (*_LENGTHS, 1)},
        {"rows": ("batch", "length", _WIDTH)},
    )


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory, bundle_of: Callable[..., Path]) -> Path:
    """For up to three batches of so many samples."""
    return bundle_of(
        tmp_path_factory.mktemp("windows") / "windows",
        _made(Windows),
        {"rows": torch.randn(2, 1, 1000)},
        {"batch": (1, 3, 1), "samples": (*_SAMPLES, 1)},
        {"rows": ("batch", 1, "samples")},
    )


@pytest.fixture(scope="module")
def layers_session(layers: Path) -> Iterator[Session]:
    """On two threads."""
    with Session(layers, threads=2) as opened:
        yield opened


@pytest.fixture(scope="module")
def windows_session(windows: Path) -> Iterator[Session]:
    """On two threads."""
    with Session(windows, threads=2) as opened:
        yield opened


def _assert_eagers(session: Session, module: type[nn.Module], rows: torch.Tensor) -> None:
    _assert_same(session.run({"rows": rows.numpy()})["out0"], module, rows)


def _assert_same(found: np.ndarray, module: type[nn.Module], rows: torch.Tensor) -> None:
    with torch.no_grad():
        expected = _made(module)(rows)
    actual = torch.from_numpy(found)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=2e-5, equal_nan=True)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(1, 70), st.floats(0.1, 30), st.integers(0, 2**31))
def test_layers_are_eagers_whatever_the_rows(
    layers_session: Session, batch: int, length: int, scale: float, seed: int
) -> None:
    """Few rows and many; values at which GELU has come to its ends."""
    generator = torch.Generator().manual_seed(seed)
    rows = scale * torch.randn(batch, length, _WIDTH, generator=generator)
    _assert_eagers(layers_session, Layers, rows)


def test_layers_are_eagers_over_many_blocks(layers_session: Session) -> None:
    """Rows that each thread takes in several goes."""
    _assert_eagers(layers_session, Layers, torch.randn(*_BLOCKS))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(*_SAMPLES), st.integers(0, 2**31))
def test_windows_are_eagers_whatever_the_length(
    windows_session: Session, batch: int, samples: int, seed: int
) -> None:
    """Also where the last samples fill no window."""
    generator = torch.Generator().manual_seed(seed)
    _assert_eagers(windows_session, Windows, torch.randn(batch, 1, samples, generator=generator))


def test_nan_and_infinity_reach_the_windows_that_hold_them(windows_session: Session) -> None:
    """And no other."""
    samples = torch.randn(1, 1, 2000)
    samples[..., 700] = torch.nan
    samples[..., 1400] = torch.inf
    _assert_eagers(windows_session, Windows, samples)


@pytest.mark.skipif(sys.platform != "linux", reason="reads memory in /proc")
def test_weights_are_held_once_whatever_the_rows(layers: Path) -> None:
    """Few rows and many would each like them packed their own way."""
    weights = sum(p.numel() * p.element_size() for p in _made(Layers).parameters())
    with Session(layers, threads=1) as opened:
        opened.run({"rows": np.zeros((1, 700, _WIDTH), np.float32)})
        before = _resident()
        for rows in (1, 2, 7, 13, 20, 40, 55, 90):
            opened.run({"rows": np.zeros((1, rows, _WIDTH), np.float32)})
        assert _resident() - before < weights / 2


@pytest.mark.skipif(sys.platform != "linux", reason="reads memory in /proc")
def test_sessions_of_one_bundle_share_what_is_packed(layers: Path) -> None:
    """A second one costs no second copy of the weights, and stays right when the first has ended."""
    weights = sum(p.numel() * p.element_size() for p in _made(Layers).parameters())
    rows = torch.randn(1, 90, _WIDTH)
    with Session(layers, threads=1) as first:
        _assert_eagers(first, Layers, rows)
        before = _resident()
        second = Session(layers, threads=1)
        found = second.run({"rows": rows.numpy()})["out0"]
        assert _resident() - before < weights / 2
    _assert_same(found, Layers, rows)
    with second:
        _assert_eagers(second, Layers, rows)


def test_sessions_that_begin_at_once_agree(layers: Path) -> None:
    """Threads that pack the same weights at the same time."""
    rows = np.random.default_rng(0).standard_normal((1, 90, _WIDTH)).astype(np.float32)
    together = Barrier(4)

    def run(_: int) -> np.ndarray:
        with Session(layers, threads=1) as opened:
            together.wait()
            return opened.run({"rows": rows})["out0"]

    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(run, range(4))
    assert all(np.array_equal(first, other) for other in others)
    _assert_same(first, Layers, torch.from_numpy(rows))


def _resident() -> int:
    """Bytes of this process's memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("kind", "shape"),
    [("layers", (1, 7, _WIDTH)), ("layers", (3, 67, _WIDTH)), ("windows", (3, 1, 2999))],
)
def test_one_thread_and_two_agree_to_the_bit(
    request: pytest.FixtureRequest, kind: str, shape: tuple[int, ...]
) -> None:
    """Each result is summed up in one order, by whichever thread."""
    rows = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    results = []
    for threads in (1, 2):
        with Session(request.getfixturevalue(kind), threads=threads) as opened:
            results.append(opened.run({"rows": rows})["out0"])
    assert np.array_equal(results[0], results[1])


@pytest.mark.parametrize(
    ("kind", "shape", "own"), [("layers", (3, 67, _WIDTH), 4), ("windows", (1, 1, 2999), 3)]
)
def test_the_profile_says_which_are_our_own(
    request: pytest.FixtureRequest, kind: str, shape: tuple[int, ...], own: int
) -> None:
    """All layers, and all convolutions but the third: without an activation it answers row-major."""
    rows = np.zeros(shape, np.float32)
    with Session(request.getfixturevalue(kind), threads=1) as opened:
        found = profile(opened, lambda: opened.run({"rows": rows}), threads=1, seconds=0.0)
    assert sum(_NOTE in kernel.kernel for kernel in found.kernels) == own


@not_on_lesser
@pytest.mark.sweep
def test_all_of_it_holds_without_avx512(layers: Path, windows: Path) -> None:
    """The same tests in a process that may use AVX2 alone."""
    assert_passes_without_avx512(__file__, {"layers": layers, "windows": windows})
