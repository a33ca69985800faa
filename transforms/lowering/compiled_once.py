"""What is compiled once, and again as soon as a file that it reads has changed."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["kept_object", "precompiled_header"]

_STAMPS = "stamps.json"
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
    text = f"#include <{include}>\n"
    source = folder / "prelude.h"
    _keep(source, folder / "prelude.h.gch", text, ["-x", "c++-header"], compile_it)
    return source


def kept_object(folder: Path, text: str, compile_it: Callable[[list[str]], None]) -> Path:
    """The object file in `folder` of a C++ source; the rest is as of a header.

    Args:
        folder: one for each text, compiler and its flags; made when missing.
        text: the source.
        compile_it: calls the compiler with the arguments it is given.
    """
    compiled = folder / "kept.o"
    _keep(folder / "kept.cpp", compiled, text, ["-c"], compile_it)
    return compiled


def _keep(
    source: Path, compiled: Path, text: str, how: list[str], compile_it: Callable[[list[str]], None]
) -> None:
    """Have both files in their folder, the second made of the first by the arguments `how`."""
    folder = source.parent
    if not _is_current(folder, compiled):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".") as place:
            written, made, read = (Path(place, n) for n in ("written", "made", "read.d"))
            written.write_text(text)
            os.utime(written, (0, 0))  # the same for all who build it: clang compares its time too
            written.replace(source)
            compile_it([*how, str(source), "-MD", "-MF", str(read), "-o", str(made)])
            stamps = Path(place, _STAMPS)
            stamps.write_text(json.dumps({name: _stamp(name) for name in _prerequisites(read)}))
            made.replace(compiled)
            stamps.replace(folder / _STAMPS)
    os.utime(folder)  # used today: what lies unused for long is collected


def _is_current(folder: Path, compiled: Path) -> bool:
    try:
        stamps = json.loads((folder / _STAMPS).read_text())
    except (OSError, ValueError):
        return False
    return compiled.exists() and all(_stamp(name) == stamp for name, stamp in stamps.items())


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
