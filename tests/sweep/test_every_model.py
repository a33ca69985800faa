"""Every model of the manifest converts, is proven, and is published."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from zoo.manifest import load_manifest

pytestmark = pytest.mark.sweep


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache folder and store for the whole sweep."""
    return tmp_path_factory.mktemp("home")


@pytest.mark.parametrize("model", sorted(load_manifest().models))
def test_model_is_published_within_tolerance(model: str, home: Path, promised: float) -> None:
    """Each output is within 1e-4 of eager, or at the promised SNR; the row says so."""
    done = subprocess.run(
        [
            Path(sys.executable).with_name("zoo"),
            "convert",
            model,
            "--random-weights",
            "0",
            "--json",
        ],
        env={**os.environ, "MENAGERIE_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    rows: list[dict[str, Any]] = json.loads(done.stdout)["results"]
    assert [(row["model"], row["outcome"]) for row in rows] == [(model, "published")], rows
    assert rows[0]["worst_absolute"] <= 1e-4 or rows[0]["worst_snr_db"] >= promised
    assert done.returncode == 0
