"""The one folder outside the project that Menagerie writes to."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from zoo.errors import UsageError

__all__ = ["home"]


def home() -> Path:
    """The cache folder: `$MENAGERIE_HOME`, else the user's cache folder `menagerie`.

    It is created when missing, for its owner only: downloads in it are opened later.

    Raises:
        UsageError: if it cannot be created.
    """
    asked = os.environ.get("MENAGERIE_HOME")
    folder = Path(asked).expanduser() if asked else platformdirs.user_cache_path("menagerie")
    folder = folder.absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            str(folder),
            f"the cache folder cannot be created ({error.strerror})",
            "Set MENAGERIE_HOME to a folder you can write to",
        ) from error
    return folder
