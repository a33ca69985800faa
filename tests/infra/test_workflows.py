"""Workflows of a code host call the project's own commands, pinned and without rights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
_PINNED = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40}")


def _read(file: Path) -> dict[str, Any]:
    made: dict[str, Any] = YAML(typ="safe").load(file.read_text())
    return made


def _steps(file: Path) -> list[dict[str, Any]]:
    return [step for job in _read(file)["jobs"].values() for step in job["steps"]]


def test_there_are_checks_wheels_and_a_macs_verdict() -> None:
    """One workflow each."""
    assert [file.stem for file in WORKFLOWS] == ["ci", "mac", "wheels"]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_an_action_is_named_by_its_commit(file: Path) -> None:
    """A tag can be moved to other code."""
    used = [step["uses"] for step in _steps(file) if "uses" in step]
    assert used
    assert [name for name in used if not _PINNED.fullmatch(name)] == []


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_a_step_runs_a_command_of_the_project(file: Path) -> None:
    """`.ci/run`, or an explained target of the Makefile; gh alone attaches wheels."""
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    known = {".ci/run", *(f"make {name}" for name in targets)}
    for step in _steps(file):
        if "run" in step:
            assert step["run"] in known or step["run"].startswith("gh release upload ")
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_a_workflow_may_read_and_no_more(file: Path) -> None:
    """Only the job that attaches wheels to a release may write."""
    read = _read(file)
    assert read["permissions"] == {"contents": "read"}
    writers = {name for name, job in read["jobs"].items() if "permissions" in job}
    assert writers <= {"attach"}


def test_the_macs_folder_is_kept_when_a_step_fails() -> None:
    """It is what the day is for; `make mac-day` names the folder."""
    uploads = [s for s in _steps(WORKFLOWS[1]) if "upload-artifact" in s.get("uses", "")]
    for upload in uploads:
        assert upload["if"] == "always()"
        assert upload["with"]["path"] == "build/mac-day"
    assert len(uploads) == 2, "of the operators, and of the whole day"
    assert '"build" / "mac-day"' in (ROOT / "benchmarks" / "mac_day.py").read_text()
