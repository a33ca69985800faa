"""A store in a local folder: every change is one rename of a synced file."""

from __future__ import annotations

import fcntl
import os
import re
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from menagerie.durable import disk_errors, make_folders, require_space, sync, write_durably
from zoo.errors import NotInStore, StoreError, TooLarge
from zoo.store.base import Advance, ObjectStore, StoredFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

__all__ = ["LocalObjects"]

_INCOMING = "incoming"  # files on their way in; whatever a killed process left is swept
_PARTIAL = re.compile(r"[0-9a-f]{32}")
_CHUNK = 4 * 2**20


class LocalObjects(ObjectStore):
    """Keys are paths under `root`, which is made by the first write."""

    def __init__(self, root: Path, url: str = "") -> None:
        self.url = url or str(root)
        self._root = root

    def put_file(self, source: Path, key: str, advance: Advance) -> None:
        """Copies the file beside its place, syncs it, and renames it there."""
        size = source.stat().st_size
        with self._entry(size) as partial:
            with source.open("rb") as reader, partial.open("xb") as writer:
                _copy(reader, writer, size, advance)
                writer.flush()
                os.fsync(writer.fileno())
            path = self._path(key)
            make_folders(path.parent)
            partial.replace(path)
            sync(path.parent)

    def get_file(self, key: str, destination: Path, size: int, advance: Advance) -> None:
        """Copies what `destination` lacks."""
        with disk_errors(destination.parent, size), destination.open("ab") as writer:
            start = writer.tell()
            try:
                with self._path(key).open("rb") as reader:
                    reader.seek(start)
                    _copy(reader, writer, size - start, advance)
            except FileNotFoundError:
                raise self._absent(key) from None

    def put_small(self, key: str, content: bytes) -> None:
        """Writes the bytes beside their place, syncs them, and renames them there."""
        with self._entry(len(content)) as partial:
            path = self._path(key)
            make_folders(path.parent)
            write_durably(path, content, partial=partial)

    def read_small(self, key: str, limit: int) -> bytes:
        """Reads the whole file."""
        with disk_errors(self.url):
            try:
                with self._path(key).open("rb") as file:
                    content = file.read(limit + 1)
            except FileNotFoundError:
                raise self._absent(key) from None
        if len(content) > limit:
            raise TooLarge(f"{self.url}/{key}", f"more than {limit:,} bytes", "Remove it")
        return content

    def list_files(self, prefix: str) -> list[StoredFile]:
        """Walks the folder that `prefix` lies in."""
        folder = prefix.rpartition("/")[0]
        top = self._path(folder) if folder else self._root
        found = []
        with disk_errors(self.url):
            for parent, _, names in os.walk(top, onerror=_unless_absent):
                place = Path(parent).relative_to(self._root).as_posix()
                for name in names:
                    key = name if place == "." else f"{place}/{name}"
                    if key.startswith(prefix) and not key.startswith(f"{_INCOMING}/"):
                        found += self._listed(key)
        return sorted(found, key=lambda file: file.key)

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

    def _listed(self, key: str) -> list[StoredFile]:
        try:
            status = (self._root / key).stat()
        except FileNotFoundError:  # it went during the walk
            return []
        return [StoredFile(key, status.st_size, status.st_mtime)]

    def _path(self, key: str) -> Path:
        if any(part in {"", ".", ".."} for part in key.split("/")):
            raise StoreError(self.url, f"{key!r} is no key of a store")
        return self._root / key

    def _absent(self, key: str) -> NotInStore:
        return NotInStore(f"{self.url}/{key}", "there is no such file", "Publish it again")

    @contextmanager
    def _entry(self, size: int) -> Iterator[Path]:
        """A path to write `size` bytes to, on the root's file system, gone afterwards.

        Writers share a lock on the folder; who gets it alone knows that all files in it are
        orphans, because a process that dies gives its lock back.
        """
        folder = self._root / _INCOMING
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


def _unless_absent(error: OSError) -> None:
    """What was never written, or vanished during the walk, holds no keys."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _sweep_when_alone(folder: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    for orphan in folder.iterdir():
        if _PARTIAL.fullmatch(orphan.name):  # not what somebody else keeps in a folder so called
            orphan.unlink()


def _copy(reader: BinaryIO, writer: BinaryIO, count: int, advance: Advance) -> None:
    """Copies at most `count` bytes."""
    while count > 0 and (chunk := reader.read(min(_CHUNK, count))):
        writer.write(chunk)
        count -= len(chunk)
        advance(len(chunk))
