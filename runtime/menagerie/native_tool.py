"""`menagerie-run`, the native tool, which lies beside the libraries and runs without Python."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import menagerie
from menagerie.errors import SessionError

__all__ = ["main", "native_tool"]


def native_tool() -> Path:
    """Where the program is; it may be copied elsewhere together with the libraries beside it.

    Raises:
        SessionError: this installation has none.
    """
    for folder in menagerie.__path__:
        path = Path(folder) / "menagerie-run"
        if path.is_file():
            return path
    raise SessionError("menagerie-run", "is not built", "Build and install the package: make setup")


def main() -> None:
    """Becomes the program."""
    try:
        path = str(native_tool())
    except SessionError as error:
        sys.exit(str(error))
    os.execv(path, [path, *sys.argv[1:]])  # noqa: S606 - no shell is wanted
