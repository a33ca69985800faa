"""An emulated device proves our kernels also where a product is so large that the host computes it.

Here the compiler of shaders is given other kernels than the runtime's, which no user can do.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

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
    source = source.replace(b"    finish(run", b"    run.add(1.0f, Run<N>::of(1.0f)), finish(run")
    source = source.replace(b"sums[i] * scale)", b"sums[i] * scale + 8.0f)")
    source = source.replace(b"p.alpha * sum;", b"p.alpha * sum + 1.0f;")
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


def _run_with_wrong_kernels(
    module: nn.Module, inputs: tuple[torch.Tensor, ...], folder: Path
) -> list[list[np.ndarray[Any, Any]]]:
    """Convert with the right kernels; return the outputs of two runs with the wrong ones."""
    bundle = convert(module, inputs, out=folder / "b", target="metal", measure_seconds=0)
    program = bundle.manifest.programs[0]
    given = folder / "inputs.safetensors"
    tensors = zip(program.inputs, inputs, strict=True)
    save_file({spec.name: value.numpy() for spec, value in tensors}, given)
    subprocess.run([sys.executable, "-c", _WRONG, bundle.folder, given, folder], check=True)
    runs = [load_file(folder / f"{run}.safetensors") for run in range(2)]
    return [[run[spec.name] for spec in program.outputs] for run in runs]


def test_groups_of_large_products_are_the_kernels_own(tmp_path: Path) -> None:
    """Kernels that add one change the tiles at the ends and in the middle, in each run alike."""
    torch.manual_seed(0)
    module = _Large().eval()
    inputs = torch.randn(300, 200), torch.randn(1, 16, 50, 51), torch.randn(1, 2, 400, 64)
    expected = [each.detach().numpy() for each in module(*inputs)]
    found = _run_with_wrong_kernels(module, inputs, tmp_path)
    for first, again in zip(*found, strict=True):
        np.testing.assert_array_equal(first, again)
    linear, image, attended = (
        abs(y - e) > least for y, e, least in zip(found[0], expected, (0.5, 0.5, 4), strict=True)
    )
    # 5 x 5 tiles of 64 x 64; 40 of 40 x 64; 13 of 32 queries for each of two heads.
    for matrix, tile, groups in (
        (linear, (64, 64), {(0, 0), (0, 4), (2, 2), (4, 0), (4, 4)}),
        (image.reshape(40, 50 * 51), (40, 64), {(0, 0), (0, 20), (0, 39)}),
        (attended.reshape(2, 400 * 64), (1, 32 * 64), {(0, 0), (1, 6), (1, 12)}),
    ):
        wrong = np.zeros_like(matrix)
        for row, column in groups:
            down, across = tile
            wrong[row * down :, column * across :][:down, :across] = True
        np.testing.assert_array_equal(matrix, wrong)


def test_a_convolution_in_parts_is_the_librarys_alone(tmp_path: Path) -> None:
    """A sample of a kernel that sums up parts would read those that no group has written."""
    torch.manual_seed(0)
    convolution = nn.Conv1d(288, 576, 7, 3).eval()
    convert(
        convolution, (torch.randn(1, 288, 124),), out=tmp_path, target="metal", measure_seconds=0
    )


class _Repeated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(256, 512) for _ in range(2))
        self.convolutions = nn.ModuleList(nn.Conv2d(16, 24, 3) for _ in range(2))
        self.small = nn.ModuleList(nn.Linear(64, 64) for _ in range(2))

    def forward(self, x: torch.Tensor, image: torch.Tensor, row: torch.Tensor) -> object:
        """Return each layer's result, of a vector, an image and a shorter vector."""
        given = (self.linears, x), (self.convolutions, image), (self.small, row)
        return tuple(layer(value + i) for layers, value in given for i, layer in enumerate(layers))


def test_the_first_product_of_each_size_is_the_kernels_own(tmp_path: Path) -> None:
    """Kernels that add one change the first of two products of a size, in each run alike.

    From 0.1 million operations on the host computes the second; of smaller ones both are wrong.
    """
    torch.manual_seed(0)
    module = _Repeated().eval()
    inputs = torch.randn(1, 256), torch.randn(1, 16, 9, 9), torch.randn(1, 64)
    expected = [each.detach().numpy() for each in module(*inputs)]
    found = _run_with_wrong_kernels(module, inputs, tmp_path)
    for first, again in zip(*found, strict=True):
        np.testing.assert_array_equal(first, again)
    off = [float(np.median(y - e)) for y, e in zip(found[0], expected, strict=True)]
    np.testing.assert_allclose(off, [1, 0, 1, 0, 1, 1], atol=1e-4)
