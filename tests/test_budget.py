"""How much code there is: lines and files of each floor, against one table.

Run with `-rA` to see the figures. Any commit may lower a number in `pyproject.toml`; raising one
takes a sentence in a decision (`infra/adr`).
"""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_SOURCES = {".py", ".cpp", ".h", ".mm", ".m", ".metal", ".toml", ".j2", ".css", ".cmake"}
_BUDGET: dict[str, dict[str, int]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "menagerie"
]["budget"]


def _sources() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    paths = [Path(name) for name in listed.split("\0") if name]
    own = [p for p in paths if "third_party" not in p.parts and (ROOT / p).is_file()]
    return [p for p in own if p.suffix in _SOURCES]


def _floor(path: Path) -> str | None:
    """The table's name for a file's place; None for tests, and for files at the top."""
    top, *rest = path.parts
    if top == "runtime":
        if path.name == "shims.toml":
            return "shims"
        return "menagerie" if rest[0] == "menagerie" else "native"
    return top if top in _BUDGET else None


def _counted() -> dict[str, tuple[int, int]]:
    """Lines and files by floor."""
    found = dict.fromkeys(_BUDGET, (0, 0))
    for path in _sources():
        floor = _floor(path)
        if floor is not None:
            lines, files = found[floor]
            found[floor] = lines + len((ROOT / path).read_bytes().splitlines()), files + 1
    return found


def _figures(floor: str, lines: int, files: int) -> str:
    allowed = _BUDGET[floor]
    return f"{floor}: {lines} of {allowed['lines']} lines, {files} of {allowed['files']} files"


@pytest.mark.parametrize(
    ("floor", "lines", "files"),
    [pytest.param(f, *found, id=_figures(f, *found)) for f, found in _counted().items()],
)
def test_a_floor_keeps_its_budget(floor: str, lines: int, files: int) -> None:
    """Neither more lines nor more files than the table allows."""
    assert lines <= _BUDGET[floor]["lines"]
    assert files <= _BUDGET[floor]["files"]


def test_every_source_has_a_floor() -> None:
    """What is no test belongs to a floor of the table, so that nothing grows outside it."""
    outside = {p.parts[0] for p in _sources() if _floor(p) is None}
    assert outside <= {"tests", ".clang-format", "pyproject.toml"}
