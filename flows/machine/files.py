"""Files in folders where others work at the same time: looking at them, and replacing one."""

from __future__ import annotations

import os
import uuid
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from menagerie.durable import write_durably

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["entries", "replace_text"]


def entries(top: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """`top` and all below it with what `lstat` says of each; links are not followed.

    What vanishes in the meantime, or may not be looked at, is left out.
    """
    below = (Path(folder, name) for folder, subs, files in os.walk(top) for name in (*subs, *files))
    for path in chain([top], below):
        try:
            found = path.lstat()
        except OSError:
            continue
        yield path, found


def replace_text(path: Path, text: str) -> None:
    """Write a file whose earlier content stays whole until the new one is.

    Raises:
        OSError: it cannot be written; nothing is left of the attempt.
    """
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        write_durably(path, text.encode(), partial=partial)
    finally:
        partial.unlink(missing_ok=True)
