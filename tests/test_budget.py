"""How much there is in each floor, tests included, against one number for each in `pyproject.toml`.

A floor's size is the mean of two counts: lines, of which a wide one counts once for each 100
columns, and tokens, eight of which count as a line. So neither wide nor dense lines make a floor
smaller. Numbers are rounded up to 100, so that small changes need no new one; raising one takes a
sentence in a decision (`infra/adr`). Run with `-rA` to see the figures.
"""

from __future__ import annotations

import io
import re
import subprocess
import tokenize
import tomllib
from math import ceil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_SOURCES = {".py", ".cpp", ".c", ".h", ".mm", ".m", ".swift", ".metal"}
_SOURCES |= {".toml", ".cmake", ".conf", ".j2", ".css", ".js"}
_BUDGET: dict[str, int] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["menagerie"][
    "budget"
]
_COLUMNS = 100
_TOKENS = 8  # of a line, on average over all floors
_STEP = 100
_COUNTED = {tokenize.NAME, tokenize.NUMBER, tokenize.OP, tokenize.STRING}
_COMMENT_OR_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|\{\#.*?\#\}|(?P<token>"(?:\\.|[^"\\\n])*"|\w+|[^\s\w])""", re.DOTALL
)


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
    """Return the floor of a file; None for files at the top."""
    top, *rest = path.parts
    if top == "runtime":
        if path.name == "shims.toml":
            return "shims"
        return "menagerie" if rest[0] == "menagerie" else "native"
    return top if top in _BUDGET else None


def _lines(text: str) -> int:
    return sum(max(1, ceil(len(line) / _COLUMNS)) for line in text.splitlines())


def _tokens(text: str, suffix: str) -> int:
    """Count tokens without comments: Python's own, elsewhere words, strings and signs."""
    if suffix == ".py":
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        return sum(token.type in _COUNTED for token in tokens)
    return sum(match["token"] is not None for match in _COMMENT_OR_TOKEN.finditer(text))


def _counted() -> dict[str, tuple[int, int]]:
    """Count lines and tokens by floor."""
    counts = dict.fromkeys(_BUDGET, (0, 0))
    for path in _sources():
        floor = _floor(path)
        if floor is not None:
            text = (ROOT / path).read_text(encoding="utf-8", errors="replace")
            lines, tokens = counts[floor]
            counts[floor] = lines + _lines(text), tokens + _tokens(text, path.suffix)
    return counts


def _size(lines: int, tokens: int) -> int:
    return ceil((lines + tokens / _TOKENS) / 2)


def _figures(floor: str, lines: int, tokens: int) -> str:
    size = _size(lines, tokens)
    return f"{floor}: {size} of {_BUDGET[floor]} ({lines} lines, {tokens} tokens)"


@pytest.mark.parametrize(
    ("floor", "lines", "tokens"),
    [pytest.param(f, *count, id=_figures(f, *count)) for f, count in _counted().items()],
)
def test_a_floor_keeps_its_budget(floor: str, lines: int, tokens: int) -> None:
    """No floor is larger than its number allows, and all numbers are round."""
    assert _size(lines, tokens) <= _BUDGET[floor]
    assert _BUDGET[floor] % _STEP == 0


def test_every_source_has_a_floor() -> None:
    """What is written belongs to a floor of the table, so that nothing grows outside it."""
    outside = {p.parts[0] for p in _sources() if _floor(p) is None}
    assert outside <= {".clang-format", "pyproject.toml"}


def test_width_and_density_do_not_make_a_floor_smaller() -> None:
    """A line of 250 columns counts as three, and eight tokens as one, wherever they are."""
    assert _lines("x" * 250 + "\nshort\n\n") == 5
    assert _tokens("a = [1, 2]  # none\n", ".py") == 7
    assert _tokens('f("one // string", 2);  // none\n', ".cpp") == 7
    assert _size(4, 16) == _size(2, 32) == 3
