"""Working folders: one for each piece of work, gone when it ends, even if it was killed."""

from __future__ import annotations

import os
import shutil
import uuid
from typing import TYPE_CHECKING

from zoo.home import home

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["abandoned_work", "new_work_folder"]


def new_work_folder(name: str) -> Path:
    """The path of a folder for this process alone, not made yet; its user removes it.

    Folders of processes that no longer live are removed first: a killed conversion leaves a bundle
    that nobody will use, and bundles are large.
    """
    for folder in abandoned_work():
        shutil.rmtree(folder, ignore_errors=True)
    return home() / "work" / f"{name}.{os.getpid()}.{uuid.uuid4().hex[:8]}"


def abandoned_work() -> list[Path]:
    """The folders of processes that are no more."""
    place = home() / "work"
    place.mkdir(exist_ok=True)
    return [folder for folder in sorted(place.iterdir()) if not _in_use(folder.name)]


def _in_use(name: str) -> bool:
    _, _, rest = name.partition(".")
    pid = rest.partition(".")[0]
    if not pid.isdigit():
        return True  # none of ours
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
