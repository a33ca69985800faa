"""What was downloaded before, by content: two targets share weights, a release what did not change.

Files are copied, where the file system can, without their bytes being written a second time: a
bundle that somebody changes afterwards changes no other one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from typing import TYPE_CHECKING

from menagerie.durable import make_folders
from menagerie.home import home

if TYPE_CHECKING:
    from pathlib import Path

    from menagerie.format.bundle_manifest import FileEntry

__all__ = ["CACHE_GB", "BlobCache"]

CACHE_GB = "MENAGERIE_CACHE_GB"
_DEFAULT_GB = 10.0
_LEAST = 64 * 2**10  # bytes: of a smaller file the question costs as much as the answer
_CLONE = 0x40049409  # FICLONE of linux/fs.h


class BlobCache:
    """Files under their sha256; those that were used longest ago go first.

    A cache that cannot be read or written is as good as none: no pull fails for it. Nobody trusts
    what it gives: a pull checks the sha256 as of what the store gives.

    Args:
        folder: made when something is kept.
        most: bytes of all files; 0: nothing is kept.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self._folder = folder
        self._most = most

    @classmethod
    def of_this_user(cls) -> BlobCache:
        """In Menagerie's own folder, of $MENAGERIE_CACHE_GB gigabytes at most: 10, if not set."""
        try:
            most = float(os.environ.get(CACHE_GB, _DEFAULT_GB))
        except ValueError:
            most = _DEFAULT_GB
        return cls(home() / "downloads", int(max(0.0, min(most, 1e9)) * 10**9))

    def give(self, entry: FileEntry, path: Path) -> None:
        """Puts the file at `path` if it is here, and of the right size."""
        kept = self._place(entry)
        with contextlib.suppress(OSError):
            if kept.is_symlink() or not kept.is_file() or kept.stat().st_size != entry.bytes:
                return
            _touch(kept)
            try:
                _copy(kept, path)
            except OSError:
                path.unlink(missing_ok=True)

    def take(self, entry: FileEntry, path: Path) -> None:
        """Keeps a file that has been checked, in place of those used longest ago."""
        kept = self._place(entry)
        if not _LEAST <= entry.bytes <= self._most:
            return
        with contextlib.suppress(OSError):
            make_folders(kept.parent)
            self._make_room(entry.bytes)
            partial = kept.with_name(f".{kept.name}.{os.getpid()}")
            try:
                _copy(path, partial)
                _touch(partial)
                partial.replace(kept)
            finally:
                partial.unlink(missing_ok=True)

    def _place(self, entry: FileEntry) -> Path:
        return self._folder / entry.sha256[:2] / entry.sha256

    def _make_room(self, size: int) -> None:
        found = [(path.stat(), path) for path in self._folder.glob("*/*") if path.is_file()]
        total = sum(status.st_size for status, _ in found) + size
        for status, path in sorted(found, key=lambda each: each[0].st_mtime_ns):
            if total <= self._most:
                return
            path.unlink(missing_ok=True)
            total -= status.st_size


def _touch(path: Path) -> None:
    """Used now, by a finer clock than the one by which a file system dates what is written."""
    now = time.time_ns()
    os.utime(path, ns=(now, now))


def _copy(source: Path, target: Path) -> None:
    """A copy that shares its blocks where the file system knows how (Btrfs, XFS)."""
    with source.open("rb") as one, target.open("wb") as two:
        try:
            fcntl.ioctl(two.fileno(), _CLONE, one.fileno())
        except OSError:
            shutil.copyfileobj(one, two, 2**20)
