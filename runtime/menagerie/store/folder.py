"""Reading a store in a local folder: keys are paths under it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from menagerie.durable import disk_errors
from menagerie.errors import NotInStore, StoreError, TooLarge
from menagerie.store.base import Advance, ObjectReader, StoredFile

if TYPE_CHECKING:
    from typing import BinaryIO

__all__ = ["INCOMING", "FolderReader", "copy_bytes"]

INCOMING = "incoming"  # a folder of the store for files on their way in; not a part of any key
_CHUNK = 4 * 2**20


class FolderReader(ObjectReader):
    """Keys are paths under `root`."""

    def __init__(self, root: Path, url: str = "") -> None:
        self.url = url or str(root)
        self._root = root

    def get_file(self, key: str, destination: Path, size: int, advance: Advance) -> None:
        """Copies what `destination` lacks."""
        with disk_errors(destination.parent, size), destination.open("ab") as writer:
            start = writer.tell()
            try:
                with self._path(key).open("rb") as reader:
                    reader.seek(start)
                    copy_bytes(reader, writer, size - start, advance)
            except FileNotFoundError:
                raise self._absent(key) from None

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
                    if key.startswith(prefix) and not key.startswith(f"{INCOMING}/"):
                        found += self._listed(key)
        return sorted(found, key=lambda file: file.key)

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


def _unless_absent(error: OSError) -> None:
    """What was never written, or vanished during the walk, holds no keys."""
    if not isinstance(error, FileNotFoundError):
        raise error


def copy_bytes(reader: BinaryIO, writer: BinaryIO, count: int, advance: Advance) -> None:
    """Copies at most `count` bytes."""
    while count > 0 and (chunk := reader.read(min(_CHUNK, count))):
        writer.write(chunk)
        count -= len(chunk)
        advance(len(chunk))
