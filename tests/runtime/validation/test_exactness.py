"""Eager and artifact are each measured against a truth in float64; nothing is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors.numpy import save_file

from menagerie.format.bundle_manifest import BundleProgram, TensorSpec, unsealed
from menagerie.numerics import Dtype
from menagerie.validation.checks import LoadedProgram, judge_program
from menagerie.validation.findings import Exactness
from menagerie.validation.goldens import GoldenCases
from zoo.report.summary import beside_truth

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from menagerie.tensor_files import Array

_ENTRY = BundleProgram(
    name="main",
    files={"library": unsealed("model.so"), "golden": unsealed("golden.safetensors")},
    golden_cases=1,
    inputs=(TensorSpec(name="x", dtype=Dtype.FLOAT32, shape=(3,)),),
    outputs=tuple(TensorSpec(name=n, dtype=Dtype.FLOAT32, shape=(3,)) for n in ("y", "z")),
    dimensions={},
    constants={},
    symbols=(),
)
_TRUTH = np.array([3.0, 4.0, 12.0])  # of norm 13


class _Perfect:
    """A session whose every output is off by 0.013 in one element."""

    keeps_state = False

    def reset(self) -> None:
        """There is no state."""

    def run(self, _: Mapping[str, Array]) -> dict[str, Array]:
        """The same, always."""
        off = (_TRUTH + np.array([0.0, 0.013, 0.0])).astype(np.float32)
        return {"y": off, "z": off}


def test_eager_and_artifact_are_measured_from_the_truth(tmp_path: Path) -> None:
    """20 log10(13 / 0.013) is 60 dB, 20 log10(13 / 0.13) is 40; only y has a truth."""
    eager = (_TRUTH + np.array([0.0, 0.0, 0.13])).astype(np.float32)
    tensors = {
        "0/input/x": np.zeros(3, np.float32),
        "0/output/y": eager,
        "0/output/z": eager,
        "0/exact/y": _TRUTH,
    }
    save_file(tensors, tmp_path / "golden.safetensors")
    goldens = GoldenCases(tmp_path / "golden.safetensors", _ENTRY)
    program = LoadedProgram(_ENTRY, _Perfect(), goldens)  # type: ignore[arg-type]
    judged = judge_program(program, {}, step=lambda _: None, seconds=0, threads=1)
    assert judged.facts  # it is not eager's to the bit: the truth changes nothing about that
    [exact] = judged.validation.exactness
    assert exact.output == "y"
    assert exact.eager_snr_db == pytest.approx(40, abs=0.01)
    assert exact.artifact_snr_db == pytest.approx(60, abs=0.01)


def test_an_output_of_another_shape_is_said_to_be_one(tmp_path: Path) -> None:
    """Where the truth is known, too: a shape that would broadcast is measured by nothing."""
    one = np.zeros(1, np.float32)
    tensors = {"0/input/x": np.zeros(3, np.float32), "0/output/y": one, "0/output/z": one}
    save_file(tensors | {"0/exact/y": np.zeros(1)}, tmp_path / "golden.safetensors")
    goldens = GoldenCases(tmp_path / "golden.safetensors", _ENTRY)
    program = LoadedProgram(_ENTRY, _Perfect(), goldens)  # type: ignore[arg-type]
    judged = judge_program(program, {}, step=lambda _: None, seconds=0, threads=1)
    assert "output is float32 of shape [3], eager's is float32 of shape [1]" in judged.facts[0]
    assert not judged.validation.exactness


@pytest.mark.parametrize(
    ("artifact", "words"),
    [(118.0, "as exact as PyTorch"), (125.0, "as exact as"), (80.0, "40 dB less than PyTorch")],
)
def test_the_report_says_what_that_means(artifact: float, words: str) -> None:
    """A bit more or less is nothing, 40 dB are."""
    found = Exactness(output="y", eager_snr_db=120.0, artifact_snr_db=artifact)
    assert words in beside_truth(found)
