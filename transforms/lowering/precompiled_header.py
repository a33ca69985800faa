"""A C++ header compiled once, and again as soon as a file that it reads has changed."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["precompiled_header"]

_HEADER, _COMPILED, _STAMPS = "prelude.h", "prelude.h.gch", "stamps.json"
_SPACE = re.compile(r"(?<!\\)\s+")


def precompiled_header(folder: Path, include: str, compile_it: Callable[[list[str]], None]) -> Path:
    """The header in `folder` that includes `<include>`, with its compiled form beside it.

    A reinstalled torch or compiler changes files under unchanged paths: clang then refuses what
    was compiled from the earlier ones, and GCC silently goes on with them. So the size and time of
    every file that was read is noted, and compared before each use.

    Args:
        folder: one for each compiler and its flags; made when missing.
        include: what stands between the angle brackets.
        compile_it: calls the compiler with the arguments it is given.
    """
    header = folder / _HEADER
    if not _is_current(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".") as place:
            _build(Path(place), header, include, compile_it)
    os.utime(folder)  # used today: what lies unused for long is collected
    return header


def _build(
    place: Path, header: Path, include: str, compile_it: Callable[[list[str]], None]
) -> None:
    text, compiled, read = place / _HEADER, place / _COMPILED, place / "read.d"
    text.write_text(f"#include <{include}>\n")
    os.utime(text, (0, 0))  # the same for all who build it at once: clang compares its time too
    text.replace(header)
    compile_it(["-x", "c++-header", str(header), "-MD", "-MF", str(read), "-o", str(compiled)])
    stamps = place / _STAMPS
    stamps.write_text(json.dumps({name: _stamp(name) for name in _prerequisites(read)}))
    compiled.replace(header.with_name(_COMPILED))
    stamps.replace(header.with_name(_STAMPS))


def _is_current(folder: Path) -> bool:
    try:
        stamps = json.loads((folder / _STAMPS).read_text())
    except (OSError, ValueError):
        return False
    present = (folder / _COMPILED).exists()
    return present and all(_stamp(name) == stamp for name, stamp in stamps.items())


def _stamp(name: str) -> list[int] | None:
    try:
        found = Path(name).stat()
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns]


def _prerequisites(rule: Path) -> list[str]:
    """The files behind the colon of the one rule that `-MD` writes, in make's syntax."""
    _, _, files = rule.read_text().replace("\\\n", " ").partition(": ")
    return [
        re.sub(r"\\(.)", r"\1", name).replace("$$", "$") for name in _SPACE.split(files.strip())
    ]
