"""The compiler of the `ziglang` wheel: clang, libc++ and other systems' libraries in one."""

from __future__ import annotations

import importlib.metadata
import sys
from importlib.util import find_spec

from zoo.errors import MenagerieError
from zoo.home import home

__all__ = ["zig_command", "zig_environment", "zig_version"]


def zig_command() -> tuple[str, ...]:
    """What starts zig's C++ compiler.

    Raises:
        MenagerieError: the wheel is not installed.
    """
    if find_spec("ziglang") is None:
        raise MenagerieError("zig", "is not installed", "pip install ziglang")
    return (sys.executable, "-m", "ziglang", "c++")


def zig_version() -> str:
    """The wheel's version, part of every build key of Metal; `absent` without it."""
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
