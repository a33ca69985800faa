"""The pipeline as a package: what it installs, and what it leaves to the small one."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The files of the pipeline's wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    options = ["--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run([*command, *options], check=True, capture_output=True)
    [wheel] = folder.glob("menagerie_zoo-*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_the_pipeline_brings_no_runtime_of_its_own(names: set[str]) -> None:
    """No `runtime`, no `tests`, and `menagerie` comes with the package that it depends on."""
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"flows", "tasks", "transforms", "zoo"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "menagerie" in {Requirement(each).name for each in project["dependencies"]}


def test_the_pipeline_carries_its_data(names: set[str]) -> None:
    """Models, their schema, trained weights and templates are in it."""
    committed = subprocess.run(
        ["git", "ls-files", "flows", "tasks", "transforms", "zoo"],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert set(committed) <= names


@pytest.mark.parametrize("package", ["swift", "onednn-cpu-gomp", "ziglang"])
def test_what_only_linux_has_is_not_asked_of_a_mac(package: str) -> None:
    """The lock installs on macOS: these have no wheels there, and a marker that says so."""
    text = (ROOT / "requirements.lock").read_text().replace("\\\n", " ")
    lines = [line.partition(" --hash")[0] for line in text.splitlines() if "==" in line]
    [found] = [r for r in map(Requirement, lines) if r.name == package]
    assert isinstance(found.marker, Marker)
    mac = {"platform_system": "Darwin", "sys_platform": "darwin", "platform_machine": "arm64"}
    assert not found.marker.evaluate(mac)
