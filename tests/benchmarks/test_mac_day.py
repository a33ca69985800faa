"""The first day on a Mac: what was there before, and what cannot be run, do not spoil it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.mac_day import Step, empty, run


def test_what_an_earlier_day_left_is_removed(tmp_path: Path) -> None:
    """Its bundles too: no bundle is pulled to where one is."""
    (tmp_path / "report.md").write_text("Device: a Mac")
    (tmp_path / "a_model").mkdir()
    (tmp_path / "a_model" / "manifest.json").write_text("{}")
    assert list(empty(tmp_path).iterdir()) == []


def test_a_folder_of_something_else_is_left(tmp_path: Path) -> None:
    """Nothing is removed that no such day wrote."""
    letter = tmp_path / "letter.txt"
    letter.write_text("dear")
    with pytest.raises(SystemExit, match="Choose another with -o"):
        empty(tmp_path)
    with pytest.raises(SystemExit, match="Choose another with -o"):
        empty(letter)
    assert letter.read_text() == "dear"


def test_a_relative_folder_is_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in the checkout: they are told the whole path."""
    monkeypatch.chdir(tmp_path)
    assert empty(Path("day")) == tmp_path / "day"
    assert (tmp_path / "day").is_dir()


def test_a_command_that_is_absent_is_a_failed_step(tmp_path: Path) -> None:
    """The next step begins all the same."""
    assert "FAILED with 127" in run(Step("none", (str(tmp_path / "absent"),)), tmp_path)
    assert "absent" in (tmp_path / "none.txt").read_text()


def test_any_bytes_are_noted(tmp_path: Path) -> None:
    """A step that says what is no text passes, and its exit code counts."""
    code = "import sys; sys.stdout.buffer.write(b'\\xff ok')"
    assert "passed" in run(Step("bytes", (sys.executable, "-c", code)), tmp_path)
    assert (tmp_path / "bytes.txt").read_text().endswith("ok")
