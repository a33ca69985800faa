"""The C++ compiler of this machine: one choice for those that call it and those that name it."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import NamedTuple

__all__ = ["HostCompiler", "find_host_compiler"]


class HostCompiler(NamedTuple):
    """A compiler driver; `version` is the first line that it says of itself."""

    path: str
    version: str


def find_host_compiler() -> HostCompiler | None:
    """`$CXX`, else c++, g++ or clang++, whichever is on the PATH first; None without any."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and (path := shutil.which(name)):
            shown = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
            return HostCompiler(path, (shown.stdout.splitlines() or ["unknown"])[0])
    return None
