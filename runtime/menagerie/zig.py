"""The compiler of the `ziglang` wheel: clang, libc++ and other systems' libraries in one."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

from menagerie.errors import MenagerieError
from menagerie.home import home

__all__ = ["zig_environment", "zig_program", "zig_version"]


def zig_program() -> Path:
    """The wheel's program, which is clang and lld by its first argument.

    Called directly, not through ``python -m ziglang``: that would start an interpreter more.

    Raises:
        MenagerieError: the wheel is not installed.
    """
    found = importlib.util.find_spec("ziglang")
    for folder in (found.submodule_search_locations or []) if found else []:
        program = Path(folder) / "zig"
        if program.is_file():
            return program
    raise MenagerieError(
        "ziglang",
        "is not installed; Metal artifacts are compiled with it, and their shaders emulated",
        "Install it: pip install ziglang",
    )


def zig_version() -> str:
    """The wheel's version, part of every build key; `absent` without it."""
    try:
        return importlib.metadata.version("ziglang")
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def zig_environment() -> dict[str, str]:
    """Variables that keep zig's cache in Menagerie's own folder.

    It builds libc++ once a target and set of flags, which takes a minute or two.
    """
    cache = home() / "zig"
    return {
        "ZIG_GLOBAL_CACHE_DIR": str(cache / "global"),
        "ZIG_LOCAL_CACHE_DIR": str(cache / "local"),
    }
