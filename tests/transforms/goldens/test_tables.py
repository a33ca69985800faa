"""Large noise is kept as the table that its elements are taken from."""

from __future__ import annotations

import subprocess
from math import prod
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from menagerie.format.folder import open_bundle, seal
from menagerie.library import native_tool
from menagerie.validation import Limits, validate
from menagerie.validation.findings import ValidationReport, Verdict
from menagerie.validation.goldens import GoldenCases
from transforms import convert
from transforms.goldens.cases import make_goldens
from zoo.spec import ProgramSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_GOLDEN = "programs/main/golden.safetensors"
_TABLE = 1 << 14


def _mixed(number: int) -> int:
    """The last step of MurmurHash3, by Python's integers."""
    number = (number ^ number >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    number = (number ^ number >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return number ^ number >> 16


def _noise(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return what a table gives."""
    table = torch.randn(_TABLE, generator=torch.Generator().manual_seed(1)).to(dtype)
    return table[[_mixed(i) % _TABLE for i in range(prod(shape))]].reshape(shape)


class _Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(50, 3)

    def forward(self, x: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
        """Return a few sums."""
        return self.linear(x).sum(0) + wide.float().sum()


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A converted bundle whose inputs of 0.4 and 0.2 MB are such noise."""
    assert _mixed(1) == 1364076727  # as published
    given = _noise(2000, 50), _noise(7, 10000, dtype=torch.bfloat16)
    convert(_Small().eval(), given, out=tmp_path / "b", measure_seconds=0)
    return tmp_path / "b"


def _judged(folder: Path) -> ValidationReport:
    return validate(folder, limits=Limits(measure_seconds=0), allow_unsigned=True)


def test_a_bundle_keeps_the_tables(bundle: Path) -> None:
    """And both runtimes make the inputs of them again."""
    kept = load_file(bundle / _GOLDEN)
    assert kept["0/input/x"].shape == kept["0/input/wide"].shape == (_TABLE,)
    assert (bundle / _GOLDEN).stat().st_size < 110_000
    manifest = open_bundle(bundle).manifest
    inputs = GoldenCases(bundle / _GOLDEN, manifest.programs[0]).inputs(0)
    assert torch.equal(torch.from_numpy(inputs["x"]), _noise(2000, 50))
    assert _judged(bundle).passed
    command = [str(native_tool()), "--allow-unsigned", str(bundle)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("key", "change", "verdict"),
    [
        ("0/input/x", lambda table: table + 1, Verdict.DIVERGED),
        ("0/input/wide", lambda table: table[1:].clone(), Verdict.REFUSED),
        ("0/sizes/x", lambda _: torch.tensor([2**40, 2**40]), Verdict.REFUSED),
        ("0/sizes/x", lambda _: torch.tensor([-2000, -50]), Verdict.REFUSED),
        ("0/sizes/x", lambda _: torch.tensor([1000, 100]), Verdict.REFUSED),
        ("0/sizes/x", lambda _: torch.tensor([2000, 50, *[1] * 97]), Verdict.REFUSED),
        ("0/sizes/x", lambda sizes: sizes.float(), Verdict.REFUSED),
    ],
)
def test_a_table_that_was_changed_is_found(
    bundle: Path,
    key: str,
    change: Callable[[torch.Tensor], torch.Tensor],
    verdict: Verdict,
) -> None:
    """By its numbers, or by sizes that cannot be; by both runtimes."""
    manifest, tensors = open_bundle(bundle).manifest, load_file(bundle / _GOLDEN)
    save_file({**tensors, key: change(tensors[key])}, bundle / _GOLDEN)
    seal(bundle, manifest)
    assert _judged(bundle).verdict is verdict
    command = [str(native_tool()), "--allow-unsigned", str(bundle)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1


def test_windows_of_large_noise_differ() -> None:
    """No two windows of four along a row are alike, as none would be of single numbers."""
    spec = ProgramSpec.model_validate(
        {"inputs": [{"name": "input", "shape": [1, 3, 300, 300]}], "golden_cases": 1}
    )
    x = make_goldens(nn.Identity(), spec)[0].inputs["input"]
    windows = x.flatten().unfold(0, 4, 1)
    assert len(torch.unique(windows, dim=0)) == len(windows)
    assert len(torch.unique(x)) > 0.95 * _TABLE
