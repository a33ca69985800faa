"""Every model with the target metal is lowered on Linux, proven by emulation, and published so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.metal import counts, fetch
from zoo.manifest import load_manifest

pytestmark = pytest.mark.sweep

_TABLE = Path(__file__).parents[2] / "benchmarks" / "metal.md"
MANIFEST = load_manifest()
MODELS = sorted(m for m in MANIFEST.models if "metal" in MANIFEST.spec(m).targets)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache folder and store for the whole sweep."""
    return tmp_path_factory.mktemp("home")


def _zoo(home: Path, *words: str) -> tuple[int, Any]:
    done = subprocess.run(
        [Path(sys.executable).with_name("zoo"), *words, "--target", "metal", "--json"],
        env={**os.environ, "MENAGERIE_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("model", MODELS)
def test_model_is_published_as_emulated(model: str, home: Path, promised: float) -> None:
    """Each output is within 1e-4 of eager, or at the promised SNR; verifying agrees."""
    code, document = _zoo(home, "convert", model, "--random-weights", "0")
    [row] = document["results"]
    assert (row["model"], row["outcome"], row["proof"]) == (model, "published", "emulated"), row
    assert row["worst_absolute"] <= 1e-4 or row["worst_snr_db"] >= promised
    assert code == 0
    code, report = _zoo(home, "verify", model)
    assert (code, report["verdict"], report["emulated"]) == (0, "passed", True)


@pytest.mark.parametrize("model", ["mobilenet_v3_small", "yolo_style", "parakeet_ctc_small"])
def test_a_gpu_has_no_more_to_do_than_the_table_says(
    home: Path, tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dispatches, breaks and commits; a change of them goes into the table."""
    monkeypatch.setenv("MENAGERIE_HOME", str(home))
    found = counts(fetch(model, tmp_path / "bundle"))["main"]
    counted = [str(found[key]) for key in ("dispatches", "encoders", "commits")]
    rows = [line.strip("| ").split(" | ") for line in _TABLE.read_text().splitlines()]
    assert counted in [cells[1:4] for cells in rows if cells[0] == f"{model}/main"]
