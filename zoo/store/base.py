"""The interface that a store is built on: writable files under keys, in a folder or a bucket."""

from __future__ import annotations

import fcntl
import os
import re
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from menagerie.durable import disk_errors, make_folders, require_space, sync
from menagerie.store.base import CHUNK, INCOMING, Advance, FolderReader, ObjectReader, StoredFile

LINK_DAYS: Final = 7  # the longest life that S3 gives a presigned address
LINK_SECONDS: Final = LINK_DAYS * 24 * 3600
T = TypeVar("T")
_PARTIAL = re.compile(r"[0-9a-f]{32}")


def content_type(name: str) -> str:
    """Return a file's content type for browsers: a page is shown, anything else is saved."""
    kinds = {"html": "text/html; charset=utf-8", "zip": "application/zip"}
    return kinds.get(name.rpartition(".")[2], "application/octet-stream")


class ObjectStore(ObjectReader):
    """Files that can be written as well as read.

    An implementation needs only what every S3 server offers: no conditional writes, no locks, no
    renames. When a method fails, readers see what they saw before.
    """

    part_bytes: int = 0  # `put_file` splits larger files into parts of at least this size; 0: never

    @abstractmethod
    def put_file(self, source: Path, key: str, advance: Advance) -> None:
        """Store the file under `key`, whole or not at all."""

    @abstractmethod
    def put_small(self, key: str, content: bytes) -> None:
        """Store `content` under `key`; readers see the old bytes or the new ones."""

    def put_if_new(self, key: str, content: bytes) -> None:
        """Store `content` under `key`, unless the key has it already."""
        if self.read_if_there(key, len(content)) != content:
            self.put_small(key, content)

    def read_record(self, key: str, limit: int, kind: type[T]) -> T | None:
        """Parse JSON of at most `limit` bytes; None if it is missing or unreadable."""
        content = self.read_if_there(key, limit)
        with suppress(ValidationError):
            return None if content is None else TypeAdapter(kind).validate_json(content)
        return None

    @abstractmethod
    def list_files(self, prefix: str) -> list[StoredFile]:
        """Return the files whose keys start with `prefix`, sorted by key."""

    def list_keys(self, prefix: str) -> list[str]:
        """Return the keys that start with `prefix`, sorted."""
        return [file.key for file in self.list_files(prefix)]

    def link(self, key: str, name: str) -> str | None:  # noqa: ARG002
        """Return an address that serves a file to browsers for a week; None if the store has none.

        Anyone who knows the address can read that file, and no other; it is saved as `name`.
        """
        return None

    def abandon_uploads(self, before: float, ours: Callable[[str], bool]) -> int:  # noqa: ARG002
        """Remove and count the unfinished uploads that began at `before` or earlier.

        `before` is in seconds since 1970 by the clock of the store's machine; `ours` says whether
        an upload to a key may be removed. A removed upload that was in progress starts again. The
        default removes none, because each file is one write.
        """
        return 0

    @abstractmethod
    def size_of(self, key: str) -> int | None:
        """Return the size of `key` in bytes; None if it does not exist."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove the file under `key`, if there is one."""


class LocalObjects(FolderReader, ObjectStore):
    """A store in a folder: keys are paths under `root`, which the first write creates."""

    def put_file(self, source: Path, key: str, advance: Advance) -> None:
        """Copy the file into the incoming folder, sync it, and rename it to its key."""
        with self._entry(key, source.stat().st_size) as writer, source.open("rb") as reader:
            while part := reader.read(CHUNK):
                writer.write(part)
                advance(len(part))

    def put_small(self, key: str, content: bytes) -> None:
        """Write the bytes in the incoming folder, sync them, and rename the file to its key."""
        with self._entry(key, len(content)) as writer:
            writer.write(content)

    def size_of(self, key: str) -> int | None:
        """Return the size that the file system reports."""
        with disk_errors(self.url):
            try:
                return self._path(key).stat().st_size
            except FileNotFoundError:
                return None

    def delete(self, key: str) -> None:
        """Unlink the file."""
        with disk_errors(self.url):
            self._path(key).unlink(missing_ok=True)

    @contextmanager
    def _entry(self, key: str, size: int) -> Iterator[BinaryIO]:
        """Open a file for `size` bytes on the root's file system; rename it to its key afterwards.

        Writers share a lock on the folder. A process that gets it alone knows that all files in it
        are orphans, because a process that dies releases its lock.
        """
        folder = self._root / INCOMING
        with disk_errors(self._root, size):
            make_folders(folder)
            require_space(folder, size)
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                _sweep_when_alone(folder, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_SH)
                partial, path = folder / uuid.uuid4().hex, self._path(key)
                try:
                    with partial.open("xb") as writer:
                        yield writer
                        writer.flush()
                        os.fsync(writer.fileno())
                    make_folders(path.parent)
                    partial.replace(path)
                    sync(path.parent)
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
        if _PARTIAL.fullmatch(orphan.name):  # spares other programs' files in a folder of this name
            orphan.unlink()
