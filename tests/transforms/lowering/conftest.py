"""A small program lowered for Metal once, for all tests that look at what came out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from transforms import run_passes
from transforms.lowering import metal
from transforms.targets import target_named

if TYPE_CHECKING:
    from pathlib import Path

    from torch.export import ExportedProgram

    from transforms.lowering.result import LoweredProgram


class Small(nn.Module):
    """A convolution, a product and two kinds of generated kernels; one weight is not row-major."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 12)
        with torch.no_grad():
            self.head.weight.set_(torch.randn(16, 12).t())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(1, 3, 8, 8) to (1, 12)."""
        return self.head(nn.functional.gelu(self.norm(self.conv(x).mean((2, 3)))))


@pytest.fixture(scope="session")
def small() -> ExportedProgram:
    """The program."""
    torch.manual_seed(11)
    with torch.no_grad():
        program = torch.export.export(Small().eval(), (torch.randn(1, 3, 8, 8),), strict=False)
        return program.run_decompositions({})


@pytest.fixture(scope="session")
def lowered(small: ExportedProgram, tmp_path_factory: pytest.TempPathFactory) -> LoweredProgram:
    """The program lowered for Metal; compiles libc++ for macOS where no cache has it yet."""
    finished, _ = run_passes(small, target_named("metal").device_passes, target="metal")
    return metal.lower(finished, tmp_path_factory.mktemp("bundle"))


@pytest.fixture(scope="session")
def dylib(lowered: LoweredProgram) -> Path:
    """Its Mach-O library."""
    return lowered.library
