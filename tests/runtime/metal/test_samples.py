"""An emulated device proves our kernels also where a product is so large that the host computes it.

Here the compiler of shaders is given other kernels than the runtime's, which no user can do.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from torch import nn
from torch.nn import functional as F

from transforms import convert

if TYPE_CHECKING:
    from pathlib import Path

# Kernels of products and convolutions that add 1 to each result, and of attention that add 8.
_WRONG = """
import sys
from safetensors.numpy import load_file, save_file
from menagerie import emulator
compiled = emulator.ShaderCompiler.compiled
def other(self, source, *rest):
    source = source.replace(b"p.alpha * totals[i]", b"p.alpha * totals[i] + 1.0f")
    source = source.replace(b"sums[i] * scale)", b"sums[i] * scale + 8.0f)")
    return compiled(self, source, *rest)
emulator.ShaderCompiler.compiled = other
import menagerie
with menagerie.open(sys.argv[1], allow_unsigned=True) as session:
    inputs = load_file(sys.argv[2])
    for run in range(2):
        save_file(session.run(inputs), f"{sys.argv[3]}/{run}.safetensors")
"""


class _Large(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(200, 300)
        self.convolution = nn.Conv2d(16, 40, 3, padding=1)

    def forward(self, x: torch.Tensor, image: torch.Tensor, query: torch.Tensor) -> object:
        """Return the three results."""
        attended = F.scaled_dot_product_attention(query, query, query)
        return self.linear(x), self.convolution(image), attended


def test_groups_of_large_products_are_the_kernels_own(tmp_path: Path) -> None:
    """Kernels that add one change the tiles at the ends and in the middle, in each run alike."""
    torch.manual_seed(0)
    module = _Large().eval()
    inputs = torch.randn(300, 200), torch.randn(1, 16, 50, 51), torch.randn(1, 2, 400, 64)
    expected = [each.detach().numpy() for each in module(*inputs)]
    bundle = convert(module, inputs, out=tmp_path / "b", target="metal", measure_seconds=0)
    names = [spec.name for spec in bundle.manifest.programs[0].inputs]
    given = tmp_path / "inputs.safetensors"
    save_file({n: v.numpy() for n, v in zip(names, inputs, strict=True)}, given)
    subprocess.run([sys.executable, "-c", _WRONG, bundle.folder, given, tmp_path], check=True)
    found = [list(load_file(tmp_path / f"{run}.safetensors").values()) for run in range(2)]
    for first, again in zip(*found, strict=True):
        np.testing.assert_array_equal(first, again)
    linear, image, attended = (
        abs(y - e) > least for y, e, least in zip(found[0], expected, (0.5, 0.5, 4), strict=True)
    )
    # 10 x 10 tiles of 32 x 32; 40 of 40 x 64; 13 of 32 queries for each of two heads.
    for matrix, tile, groups in (
        (linear, (32, 32), {(0, 0), (0, 9), (5, 5), (9, 0), (9, 9)}),
        (image.reshape(40, 50 * 51), (40, 64), {(0, 0), (0, 20), (0, 39)}),
        (attended.reshape(2, 400 * 64), (1, 32 * 64), {(0, 0), (1, 6), (1, 12)}),
    ):
        wrong = np.zeros_like(matrix)
        for row, column in groups:
            down, across = tile
            wrong[row * down :, column * across :][:down, :across] = True
        np.testing.assert_array_equal(matrix, wrong)
