"""This machine's C++ compiler, and the `ziglang` wheel's clang with libc++ for all systems."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from menagerie.errors import MenagerieError
from menagerie.paths import home


class HostCompiler(NamedTuple):
    """A compiler driver; `version` is the first line that `--version` prints."""

    path: str
    version: str


def find_host_compiler() -> HostCompiler | None:
    """Return `$CXX`, else the first of c++, g++ and clang++ on the PATH; None if there is none."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and (path := shutil.which(name)):
            shown = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
            return HostCompiler(path, (shown.stdout.splitlines() or ["unknown"])[0])
    return None


def zig_program() -> Path:
    """Return the path of the wheel's program, whose first argument selects clang or lld.

    It is called directly, because ``python -m ziglang`` would start another interpreter. Raise
    MenagerieError if the wheel is not installed.
    """
    found = importlib.util.find_spec("ziglang")
    for folder in (found.submodule_search_locations or []) if found else []:
        program = Path(folder) / "zig"
        if program.is_file():
            return program
    fact = "is not installed; Metal artifacts are compiled with it, and their shaders emulated"
    raise MenagerieError("ziglang", fact, "Install it: pip install ziglang")


def package_version(name: str) -> str:
    """Return an installed package's version for build keys; `absent` if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def zig_cache() -> Path:
    """Return the folder of zig's cache, one for each Python environment.

    With a shared one, zig recompiles libc++, for 40 s, whenever the wheel's path changes.
    """
    return home() / "zig" / hashlib.sha256(os.fsencode(sys.prefix)).hexdigest()[:16]


def zig_environment() -> dict[str, str]:
    """Return variables that keep zig's cache, which fills slowly, in Menagerie's own folder."""
    cache = zig_cache()
    return {
        "ZIG_GLOBAL_CACHE_DIR": str(cache / "global"),
        "ZIG_LOCAL_CACHE_DIR": str(cache / "local"),
    }
