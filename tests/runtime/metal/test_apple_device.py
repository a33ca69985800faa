"""The Apple device compiles on Linux, against declarations of what it uses of Apple's frameworks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_RUNTIME = _HERE.parents[2] / "runtime"
_APPLE = _RUNTIME / "metal" / "apple"
_DECLARATIONS = _HERE / "declarations"
_SOURCES = sorted(_APPLE.glob("*.mm"))
_SELECTOR = re.compile(r"(\w+):")


def _compile(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """With ARC and every warning an error, as for a Mac with an arm64 processor."""
    command = [
        sys.executable, "-m", "ziglang", "c++", "-target", "aarch64-macos.15.0",
        "-x", "objective-c++", "-std=c++20", "-fobjc-arc", "-fobjc-arc-exceptions",
        "-fobjc-exceptions", "-Wall", "-Wextra", "-Werror", "-c",
        *(f"-I{folder}" for folder in (_DECLARATIONS, _RUNTIME, _RUNTIME / "include")),
        str(source), "-o", str(target),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("source", _SOURCES, ids=lambda path: path.name)
def test_compiles_for_a_mac(source: Path, tmp_path: Path) -> None:
    """Every type, property and selector is declared, and is used with the types it takes."""
    result = _compile(source, tmp_path / "device.o")
    assert result.returncode == 0, result.stderr


def test_a_misspelt_selector_is_an_error(tmp_path: Path) -> None:
    """The check above would notice: one letter less in a selector does not compile."""
    text = (_APPLE / "stream.mm").read_text()
    assert "waitUntilCompleted" in text
    wrong = tmp_path / "stream.mm"
    wrong.write_text(text.replace("waitUntilCompleted", "waitUntilComplete"))
    result = _compile(wrong, tmp_path / "device.o")
    assert result.returncode != 0
    assert "waitUntilComplete" in result.stderr


def test_declarations_name_their_pages() -> None:
    """Each framework's declarations say where its documentation lists them."""
    for header in _DECLARATIONS.glob("*/*.h"):
        assert "developer.apple.com/documentation/" in header.read_text(), header.name


def test_nothing_is_declared_that_is_not_used() -> None:
    """The declarations are those of the device's sources, no more: each selector occurs there."""
    sources = "".join(path.read_text() for path in _APPLE.iterdir())
    unused = [
        part
        for header in _DECLARATIONS.glob("*/*.h")
        for method in re.findall(r"^[-+] \([^;]+;", header.read_text(), re.MULTILINE)
        for part in _SELECTOR.findall(re.sub(r"\([^()]*(\([^()]*\)[^()]*)*\)", " ", method))
        if f"{part}:" not in sources
    ]
    assert unused == []
