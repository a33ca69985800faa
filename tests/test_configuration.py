"""docs/configuration.md lists every environment variable and exit code, and none that is gone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from menagerie.cli import main
from menagerie.errors import MenagerieError, UsageError

ROOT = Path(__file__).parent.parent
FOLDERS = ("flows", "tasks", "transforms", "zoo", "runtime", "infra", "tests", "benchmarks")
NAME = re.compile(r"MENAGERIE_[A-Z0-9_]+")


def documented() -> set[str]:
    """The variables that rows of the table begin with."""
    rows = re.findall(
        r"^\| (`MENAGERIE.*?) \|", (ROOT / "docs/configuration.md").read_text(), re.MULTILINE
    )
    return {name for row in rows for name in NAME.findall(row)}


def read_by_sources() -> set[str]:
    """Texts of Python and C++ that are such a name as a whole, but for constants of the C API."""
    found: set[str] = set()
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.*")]
    for file in files:
        if file.suffix == ".py":
            nodes = ast.walk(ast.parse(file.read_text()))
            texts = [n.value for n in nodes if isinstance(n, ast.Constant)]
            found |= {v for v in texts if isinstance(v, str) and NAME.fullmatch(v)}
        elif file.suffix in {".cpp", ".mm", ".h"} and "third_party" not in file.parts:
            found |= set(re.findall(rf'"({NAME.pattern})"', file.read_text()))
    header = (ROOT / "runtime/include/menagerie.h").read_text()
    whole = {name for name in found if not name.endswith("_")}  # else the beginning of several
    return whole - set(NAME.findall(header))


def test_every_variable_is_documented_and_none_that_is_gone() -> None:
    """The table's rows are what the sources read."""
    assert documented() == read_by_sources()


def test_the_exit_codes_are_those_of_the_table() -> None:
    """Of a failure, of misuse, and of an interruption."""
    codes = re.findall(r"^\| (\d+) \|", (ROOT / "docs/configuration.md").read_text(), re.MULTILINE)
    assert codes == ["0", "1", "2", "130"]
    assert (MenagerieError.exit_code, UsageError.exit_code) == (1, 2)
    assert main(["run"]) == 2
