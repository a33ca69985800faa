"""Where PostgreSQL's programs are, and how they are run: never as root."""

from __future__ import annotations

import shutil
from pathlib import Path

AS_OWNER = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]


def program(name: str) -> list[str]:
    """A command's first words: Debian puts most of them into a folder of their version.

    Raises:
        FileNotFoundError: it is not installed.
    """
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = shutil.which(name) or (str(installed[-1]) if installed else None)
    if found is None:
        raise FileNotFoundError(f"{name}: apt install postgresql")
    return [*AS_OWNER, found]
