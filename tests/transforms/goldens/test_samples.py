"""Bundles of large outputs keep a sample of them, and are proven by it all the same."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from menagerie.format.folder import open_bundle, seal
from menagerie.library import native_tool
from menagerie.numerics import DEFAULT_TOLERANCES, Dtype
from menagerie.validation import Limits, validate
from menagerie.validation.findings import ValidationReport, Verdict
from menagerie.validation.goldens import GoldenCases
from menagerie.validation.samples import sampled
from transforms import convert
from zoo.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_GOLDEN = "programs/main/golden.safetensors"


class _Large(nn.Module):
    """36 KB of weights; results of 2.8, 1.7 and 1.4 MB."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 1000)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return floats, integers and bfloat16."""
        wide = self.linear(x)
        return wide, x[:, :1].mul(100).long().expand(-1, 300), wide.bfloat16()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A converted bundle."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("large") / "b"
    convert(_Large().eval(), (torch.randn(700, 8),), out=folder, measure_seconds=0)
    return folder


def _judged(folder: Path) -> ValidationReport:
    return validate(folder, limits=Limits(measure_seconds=0), allow_unsigned=True)


def _tampered(large: Path, to: Path, key: str, change: Callable[[torch.Tensor], object]) -> Path:
    """Copy the bundle, change one golden tensor, and seal it."""
    shutil.copytree(large, to)
    manifest = open_bundle(to).manifest
    tensors = {name: tensor.clone() for name, tensor in load_file(to / _GOLDEN).items()}
    change(tensors[key])
    (to / _GOLDEN).unlink()
    save_file(tensors, to / _GOLDEN)
    seal(to, manifest)
    return to


def test_a_sample_takes_a_megabyte_at_most(large: Path) -> None:
    """Each of the two files of eager's answers; attempts to refute the program stay."""
    for name in ("golden", "refuting"):
        assert (large / f"programs/main/{name}.safetensors").stat().st_size < 1_000_000
    report = _judged(large)
    assert report.passed
    assert {o.output: o.shape for o in report.programs[0].parity}["output_0"] == (700, 1000)
    refuting = report.programs[0].refuting
    assert refuting is not None
    assert len(refuting.tried) >= 5
    done = subprocess.run([native_tool(), large, "--allow-unsigned"], check=False)
    assert done.returncode == 0


def test_elements_are_eagers(large: Path) -> None:
    """Every so many-th along each axis, and the sums of all."""
    kept = load_file(large / _GOLDEN)
    wide, whole, _ = _Large().eval()(kept["0/input/x"])  # integers do not depend on weights
    rows, columns = kept["0/steps/output_1"].tolist()
    assert kept["0/shape/output_1"].tolist() == list(whole.shape)
    assert rows % 2 == columns % 2 == 1
    assert torch.equal(kept["0/output/output_1"], whole[::rows, ::columns])
    assert kept["0/sums/output_1"].sum() == whole.sum()
    assert wide.numel() > kept["0/output/output_0"].numel()


@pytest.mark.parametrize("part", ["output", "sums"])
@pytest.mark.parametrize("name", ["output_0", "output_1", "output_2"])
def test_what_is_kept_judges(large: Path, tmp_path: Path, part: str, name: str) -> None:
    """A golden element or sum that the artifact does not give refuses it."""
    bundle = _tampered(large, tmp_path / "b", f"0/{part}/{name}", lambda t: t[1, 1].add_(300))
    report = _judged(bundle)
    assert report.verdict is Verdict.DIVERGED
    assert f"output {name}: " in report.detail
    assert "(of a sample, every [" in report.detail


@pytest.mark.parametrize("key", ["steps", "shape"])
def test_a_sample_that_cannot_be_is_refused(large: Path, tmp_path: Path, key: str) -> None:
    """The error names the output."""
    bundle = _tampered(large, tmp_path / "b", f"0/{key}/output_0", lambda t: t.zero_())
    with pytest.raises(ArtifactError, match="0/output_0"):
        GoldenCases(bundle / _GOLDEN, open_bundle(bundle).manifest.programs[0])


def test_an_element_that_is_not_kept_is_judged_by_its_block() -> None:
    """One of a million that is wrong by a tenth of the scale, and honest rounding."""
    eager = np.random.default_rng(0).standard_normal((1000, 1000)).astype(np.float32)
    sample, tolerance = sampled(eager, Dtype.FLOAT32, 65536), DEFAULT_TOLERANCES[Dtype.FLOAT32]
    assert sample is not None
    rounded = eager * np.float32(1 + 1e-6)
    assert sample.fact(rounded, Dtype.FLOAT32, tolerance) == ""
    rounded[502, 503] += 0.5
    assert not all(index % step == 0 for index, step in zip((502, 503), sample.steps, strict=True))
    assert "the block at [" in sample.fact(rounded, Dtype.FLOAT32, tolerance)
