"""Weights in half precision and as integers: products read them as they are stored, exactly."""

from __future__ import annotations

import copy
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from menagerie.library import native_tool
from menagerie.session import Session
from transforms import convert
from transforms.export.prepare import Program
from transforms.passes.quantisation import INTEGERS, quantised
from zoo.precision import Precision

if TYPE_CHECKING:
    from collections.abc import Iterator

_WIDTH, _WIDER = 70, 131  # neither fills panels of columns
_WORDS = 4001
_BIG = 1024


class Layers(nn.Module):
    """Linear layers with what may follow them, one by a matrix that is stored by its columns."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(_WIDTH, _WIDER)
        self.second = nn.Linear(_WIDER, _WIDTH, bias=False)
        self.turned = nn.Parameter(torch.randn(_WIDTH, _WIDER) / _WIDTH**0.5)
        self.last = nn.Linear(_WIDER, _WIDTH)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """(N, 70) of rows (N, 70)."""
        x = torch.relu(self.second(F.gelu(self.first(rows))))
        return F.leaky_relu(self.last(torch.tanh(x @ self.turned)), 0.1) + rows


class Images(nn.Module):
    """Convolutions: with stride, dilation and groups, of pixels, of 3 x 3 tiles, and of lines."""

    def __init__(self) -> None:
        super().__init__()
        self.stride = nn.Conv2d(13, 48, (3, 5), stride=2, padding=(1, 2))
        self.pixels = nn.Conv2d(48, 96, 1, bias=False)
        self.groups = nn.Conv2d(96, 64, 3, padding=2, dilation=2, groups=2)
        self.tiles = nn.Conv2d(64, 72, 3, padding=1)
        self.line = nn.Conv1d(72, 33, 5, padding=2, stride=3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(N, 33, ...) of images (N, 13, 50, width)."""
        x = F.silu(self.pixels(torch.relu(self.stride(images))))
        x = F.hardtanh(self.tiles(self.groups(x)), -4, 4)
        made: torch.Tensor = self.line(x.mean(2))
        return made


class Words(nn.Module):
    """A table that is read by rows, and multiplied with."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(_WORDS, _WIDTH)
        self.mix = nn.Linear(_WIDTH, _WIDTH)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Scores (N, 4001) of words (N,)."""
        return F.linear(self.mix(self.table(words)), self.table.weight)


_EXAMPLES = {
    Layers: (torch.randn(5, _WIDTH), {0: torch.export.Dim("rows", min=1, max=300)}),
    Images: (
        torch.randn(2, 13, 50, 60),
        {0: torch.export.Dim("batch", min=1, max=3), 3: torch.export.Dim("width", min=9, max=90)},
    ),
    Words: (torch.arange(7), {0: torch.export.Dim("count", min=1, max=70)}),
}


def _made(kind: type[nn.Module], precision: Precision) -> nn.Module:
    """The module whose weights are those that the bundle stores, in float32."""
    torch.manual_seed(0)
    module = kind().eval().requires_grad_(requires_grad=False)
    for weight in module.parameters():
        if weight.dim() < 2:
            continue
        if precision in INTEGERS:
            rounded = quantised(weight, INTEGERS[precision])
            assert rounded is not None
            weight.copy_(rounded.wide())
        else:
            weight.copy_(weight.to(getattr(torch, precision.value)).float())
    return module


@pytest.fixture(
    scope="module", params=[Precision.FLOAT16, Precision.INT4_WEIGHT_ONLY], ids=lambda p: p.value
)
def sessions(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Precision, dict[type[nn.Module], Session]]]:
    """A bundle of all three, opened on two threads."""
    precision = request.param
    folder = tmp_path_factory.mktemp("stored") / "bundle"
    programs = {
        kind.__name__.lower(): Program(_made(kind, precision), (example,), {}, (sizes,))
        for kind, (example, sizes) in _EXAMPLES.items()
    }
    convert(programs, out=folder, precision=precision, measure_seconds=0)
    opened = {kind: Session(folder, kind.__name__.lower(), threads=2) for kind in _EXAMPLES}
    yield precision, opened
    for session in opened.values():
        session.close()


Opened = tuple[Precision, dict[type[nn.Module], Session]]


def _assert_eagers(sessions: Opened, kind: type[nn.Module], given: torch.Tensor) -> None:
    precision, opened = sessions
    with torch.no_grad():
        expected = _made(kind, precision)(given)
    [name] = [each.name for each in opened[kind].inputs]
    [found] = opened[kind].run({name: given.numpy()}).values()
    torch.testing.assert_close(
        torch.from_numpy(found), expected, rtol=2e-5, atol=2e-5, equal_nan=True
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 70), st.sampled_from([0.0, 0.1, 30.0]), st.integers(0, 2**31))
def test_layers_are_eagers_whatever_the_rows(
    sessions: Opened, rows: int, scale: float, seed: int
) -> None:
    """Of rounded weights: one row and many, zeros, and values at the ends of activations."""
    generator = torch.Generator().manual_seed(seed)
    _assert_eagers(sessions, Layers, scale * torch.randn(rows, _WIDTH, generator=generator))


def test_rows_may_lie_anyhow(sessions: Opened) -> None:
    """Columns of a larger matrix, and more rows than a block has."""
    _assert_eagers(sessions, Layers, torch.randn(_WIDTH, 300).T)
    _assert_eagers(sessions, Layers, torch.randn(600, 2 * _WIDTH)[::2, ::2])


@pytest.mark.parametrize("odd", [torch.nan, torch.inf, -torch.inf])
def test_numbers_that_are_not_finite_stay_in_their_row(sessions: Opened, odd: float) -> None:
    """And reach the results that eager's do."""
    rows = torch.randn(13, _WIDTH)
    rows[5, 3] = odd
    _assert_eagers(sessions, Layers, rows)


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 3), st.integers(9, 90), st.integers(0, 2**31))
def test_convolutions_are_eagers_whatever_the_sizes(
    sessions: Opened, batch: int, width: int, seed: int
) -> None:
    """Of rounded weights: windows beyond each end, one image and several."""
    generator = torch.Generator().manual_seed(seed)
    _assert_eagers(sessions, Images, torch.randn(batch, 13, 50, width, generator=generator))


def test_zeros_and_one_odd_image_of_a_batch(sessions: Opened) -> None:
    """A NaN in one image is in no other's result."""
    images = torch.zeros(3, 13, 50, 33)
    images[1] = torch.nan
    _assert_eagers(sessions, Images, images)


@pytest.mark.parametrize("count", [1, 2, 70])
def test_a_table_is_read_by_rows(sessions: Opened, count: int) -> None:
    """Its first row, its last one, and one twice."""
    words = torch.tensor([_WORDS - 1, 0, 17, 17] * 18)[:count]
    _assert_eagers(sessions, Words, words)


@pytest.mark.parametrize("word", [-1, _WORDS])
def test_a_row_that_is_not_there_ends_the_run(sessions: Opened, word: int) -> None:
    """As in eager; the session then works on."""
    session = sessions[1][Words]
    with pytest.raises(Exception, match="out of range"):
        session.run({session.inputs[0].name: np.array([1, word])})
    _assert_eagers(sessions, Words, torch.tensor([1]))


class Odd(nn.Module):
    """A product of an odd depth, windows of an odd one, and attention of an odd width and length."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(777, 301)
        self.windows = nn.Conv2d(33, 70, 3, stride=2, padding=1)

    def forward(
        self, rows: torch.Tensor, images: torch.Tensor, heads: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Return the three results."""
        attended = F.scaled_dot_product_attention(heads, heads.sin(), heads.cos())
        return self.linear(rows), self.windows(images), attended


def _attended(heads: torch.Tensor) -> torch.Tensor:
    """What attention gives whose products take rounded operands and sum up exactly."""

    def rounded(x: torch.Tensor) -> torch.Tensor:
        return x.float().bfloat16().double()

    scores = rounded(heads * heads.shape[-1] ** -0.5) @ rounded(heads.sin()).mT
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    return rounded(weights) @ rounded(heads.cos()) / weights.sum(-1, keepdim=True)


@pytest.mark.parametrize("most", ["ALL", "AVX512_CORE"])
def test_bfloat16_multiplies_rounded_rows_where_the_processor_can(
    tmp_path: Path, most: str
) -> None:
    """There both operands are bfloat16, elsewhere the weights alone; sums are float32's."""
    module = _made(Odd, Precision.BFLOAT16)
    given = torch.randn(50, 777), torch.randn(2, 33, 21, 20), torch.randn(1, 3, 61, 37)
    given[0][7, 5] = torch.nan
    folder = tmp_path / "bundle"
    example = tuple(torch.randn_like(each) for each in given)
    convert(module, example, out=folder, precision=Precision.BFLOAT16, measure_seconds=0)
    program = (
        "import sys, numpy as np; from menagerie.session import Session\n"
        "*given, to = sys.argv[2:]; session = Session(sys.argv[1], threads=2)\n"
        "files = zip(session.inputs, given, strict=True)\n"
        "np.savez(to, **session.run({each.name: np.load(file) for each, file in files}))"
    )
    files = [tmp_path / name for name in ("0.npy", "1.npy", "2.npy", "results.npz")]
    for file, each in zip(files, given, strict=False):
        np.save(file, each.numpy())
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": most}
    subprocess.run([sys.executable, "-c", program, folder, *files], env=environment, check=True)
    rounds = most == "ALL" and "avx512_bf16" in Path("/proc/cpuinfo").read_text(encoding="ascii")
    taken = [each.bfloat16().double() if rounds else each.double() for each in given]
    *expected, exact = copy.deepcopy(module).double()(*taken[:2], given[2].double())
    coarse = _attended(given[2])
    assert (coarse - exact).abs().max() > 5e-4
    with np.load(files[-1]) as results:
        *products, attended = results.values()
    for found, wanted in zip(products, expected, strict=True):
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-5, atol=1e-5)
    # A weight in the middle of two of bfloat16 may be rounded to the other one.
    bound = 1e-4 if rounds else 1e-5
    np.testing.assert_allclose(attended, (coarse if rounds else exact).numpy(), atol=bound)


@pytest.mark.skipif(
    platform.machine() not in {"x86_64", "AMD64"}, reason="the kernels are for x86-64"
)
def test_no_copy_of_the_floats_is_made(tmp_path: Path) -> None:
    """Beyond what the program takes by itself, half precision takes half of float32's memory."""
    layers = nn.Sequential(*(nn.Linear(_BIG, _BIG) for _ in range(16))).eval()
    taken = {}
    for precision in (Precision.FLOAT32, Precision.FLOAT16):
        folder = tmp_path / precision.value
        convert(layers, (torch.randn(3, _BIG),), out=folder, precision=precision, measure_seconds=0)
        command = [str(native_tool()), "--allow-unsigned", "--bench", "1", str(folder)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        taken[precision] = float(done.stdout.split()[-2])
    weights = 16 * _BIG * _BIG * 4 / 1e6
    assert taken[Precision.FLOAT32] - taken[Precision.FLOAT16] > 0.4 * weights
