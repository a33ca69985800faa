"""The native tool judges as the validation does, element type by element type."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from menagerie.format.folder import seal
from menagerie.library import native_tool
from menagerie.numerics import Dtype

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from handmade import handmade_program
from manifests import draft_manifest
from verdicts import VERDICTS, Array, Verdict


def _tensor(verdict: Verdict, array: Array) -> torch.Tensor:
    tensor = torch.from_numpy(array.copy())
    return tensor.view(torch.bfloat16) if verdict.dtype is Dtype.BFLOAT16 else tensor


def _bundle(folder: Path, library: Path, verdicts: list[Verdict]) -> Path:
    """A program a verdict, each of which gives its input: the output that is to be judged."""
    programs = []
    for number, verdict in enumerate(verdicts):
        home = folder / "programs" / f"p{number}"
        home.mkdir(parents=True)
        shutil.copy(library, home / "model.so")
        tensors = {"input/x": verdict.output, "output/y": verdict.eager}
        save_file(
            {f"0/{name}": _tensor(verdict, array) for name, array in tensors.items()},
            home / "golden.safetensors",
        )
        shape = verdict.output.shape
        programs.append(handmade_program(f"p{number}", verdict.dtype, shape, 1))
    save_file({"unused": torch.zeros(1)}, folder / "weights.safetensors")
    tolerances = {v.dtype: v.tolerance for v in verdicts if v.tolerance is not None}
    files = {"weights": "weights.safetensors"}
    seal(folder, draft_manifest("identity", programs, files, tolerances=tolerances))
    return folder


@pytest.mark.parametrize("exact", [False, True], ids=["tolerant", "bit for bit"])
def test_the_tool_comes_to_the_same_verdicts(tmp_path: Path, libraries: Path, exact: bool) -> None:
    """Every pair of outputs is equal for it, or differs, just as for the validation."""
    verdicts = [v for v in VERDICTS if (v.tolerance is None) is exact]
    bundle = _bundle(tmp_path / "bundle", libraries / "model.so", verdicts)
    done = subprocess.run(
        [str(native_tool()), bundle, "--allow-unsigned"],
        capture_output=True,
        text=True,
        check=False,
        env={},
    )
    assert done.stderr == ""
    found = [line.split()[-1] for line in done.stdout.splitlines()[2:]]
    expected = {v.name: "ok" if v.passed else "DIFFERS" for v in verdicts}
    assert expected == dict(zip(expected, found, strict=True))
