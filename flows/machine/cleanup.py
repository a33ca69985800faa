"""Removing what no release needs, and what killed processes left in Menagerie's own folder."""

from __future__ import annotations

import shutil
import stat
import time
from typing import TYPE_CHECKING

from flows.machine.files import entries
from flows.machine.work import abandoned_work
from menagerie.figures import size
from menagerie.paths import home
from zoo.frozen import Frozen
from zoo.store import Swept, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from zoo.store import KeepRule

__all__ = ["Collected", "collect"]

_DAY = 86400.0
_LOG_DAYS = 30.0


class Collected(Frozen):
    """What was removed, or would be."""

    store: str
    dry_run: bool
    swept: Swept
    local_files: int
    local_bytes: int

    @property
    def summary(self) -> str:
        """One line."""
        s = self.swept
        builds = f"{len(s.releases)} releases, {len(s.candidates)} candidates"
        what = f"{builds}, {s.blobs} files ({size(s.bytes)})"
        here = f"{self.local_files} of its own ({size(self.local_bytes)})"
        kept = f"{s.kept_releases} releases and {s.kept_blobs} files stay"
        return f"{'would remove' if self.dry_run else 'removed'} {what} and {here}; {kept}"


def collect(store: str, keep: KeepRule, *, dry_run: bool) -> Collected:
    """Sweep the store, then Menagerie's own folder.

    Raises:
        MenagerieError: the store could not be swept; what is released is whole.
    """
    swept = open_store(store).sweep(keep, dry_run=dry_run)
    files, taken = _sweep_home(_LOG_DAYS, dry_run=dry_run)
    return Collected(
        store=store, dry_run=dry_run, swept=swept, local_files=files, local_bytes=taken
    )


def _sweep_home(days: float, *, dry_run: bool) -> tuple[int, int]:
    """Remove work folders of processes that are no more, and what was not used for `days`.

    Args:
        days: age from which on logs, kept documents, fetched reports and submissions, and compiled
            headers go; a clock that jumps can only delay it or cost a file that is made again.
        dry_run: only count.

    Returns:
        How many files and folders, and their bytes.
    """
    found = [
        *abandoned_work(),
        *_old(home() / "logs", days),
        *_old(home() / "documents", days),
        *_old(home() / "fetched", days),
        *_unused(home() / "headers", days),
        *_unused(home() / "submissions", days),
    ]
    size = sum(_bytes(path) for path in found)
    if not dry_run:
        for path in found:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    return len(found), size


def _old(folder: Path, days: float) -> Iterator[Path]:
    before = time.time() - days * _DAY
    for path, found in sorted(entries(folder)):
        if path.name.startswith("events-"):
            continue  # log shippers read these; a line a stage
        if stat.S_ISREG(found.st_mode) and found.st_mtime < before:
            yield path


def _unused(folder: Path, days: float) -> Iterator[Path]:
    """Folders in `folder` whose own time, which each use sets, is `days` back."""
    before = time.time() - days * _DAY
    for path, found in sorted(entries(folder)):
        if path.parent == folder and stat.S_ISDIR(found.st_mode) and found.st_mtime < before:
            yield path


def _bytes(path: Path) -> int:
    return sum(found.st_size for _, found in entries(path) if stat.S_ISREG(found.st_mode))
