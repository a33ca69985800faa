"""Looking at folders in which others work at the same time."""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["entries"]


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
