"""A store in a local folder: every change is one rename of a synced file."""

from __future__ import annotations

import fcntl
import os
import re
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

from menagerie.durable import disk_errors, make_folders, require_space, sync, write_durably
from menagerie.store.base import INCOMING, FolderReader, copy_bytes
from zoo.store.base import Advance, ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["LocalObjects"]

_PARTIAL = re.compile(r"[0-9a-f]{32}")


class LocalObjects(FolderReader, ObjectStore):
    """Keys are paths under `root`, which is made by the first write."""

    def put_file(self, source: Path, key: str, advance: Advance) -> None:
        """Copies the file beside its place, syncs it, and renames it there."""
        size = source.stat().st_size
        with self._entry(size) as partial:
            with source.open("rb") as reader, partial.open("xb") as writer:
                copy_bytes(reader, writer, size, advance)
                writer.flush()
                os.fsync(writer.fileno())
            path = self._path(key)
            make_folders(path.parent)
            partial.replace(path)
            sync(path.parent)

    def put_small(self, key: str, content: bytes) -> None:
        """Writes the bytes beside their place, syncs them, and renames them there."""
        with self._entry(len(content)) as partial:
            path = self._path(key)
            make_folders(path.parent)
            write_durably(path, content, partial=partial)

    def abandon_uploads(self, before: float, ours: Callable[[str], bool]) -> int:  # noqa: ARG002
        """Nothing to do: what a killed process left is swept by the next writer."""
        return 0

    def size_of(self, key: str) -> int | None:
        """Asks the file system."""
        with disk_errors(self.url):
            try:
                return self._path(key).stat().st_size
            except FileNotFoundError:
                return None

    def delete(self, key: str) -> None:
        """Unlinks the file."""
        with disk_errors(self.url):
            self._path(key).unlink(missing_ok=True)

    @contextmanager
    def _entry(self, size: int) -> Iterator[Path]:
        """A path to write `size` bytes to, on the root's file system, gone afterwards.

        Writers share a lock on the folder; who gets it alone knows that all files in it are
        orphans, because a process that dies gives its lock back.
        """
        folder = self._root / INCOMING
        with disk_errors(self._root, size):
            make_folders(folder)
            require_space(folder, size)
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                _sweep_when_alone(folder, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_SH)
                partial = folder / uuid.uuid4().hex
                try:
                    yield partial
                finally:
                    partial.unlink(missing_ok=True)
            finally:
                os.close(descriptor)


def _sweep_when_alone(folder: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    for orphan in folder.iterdir():
        if _PARTIAL.fullmatch(orphan.name):  # not what somebody else keeps in a folder so called
            orphan.unlink()
