"""What a store is built on: files under keys, in a folder or in a bucket."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Advance", "Meter", "ObjectStore", "Progress", "StoredFile", "silent"]

Progress = Callable[[int, int], None]  # bytes done, bytes in all
Advance = Callable[[int], None]  # bytes moved since the last call; negative when work was lost


def silent(done: int, total: int) -> None:
    """The progress that nobody watches."""


class Meter:
    """Adds up what is moved and tells a progress callback."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._done = 0
        self._total = total
        self._progress = progress
        progress(0, total)

    def advance(self, count: int) -> None:
        """Counts `count` more bytes as done."""
        self._done += count
        self._progress(self._done, self._total)


@dataclass(frozen=True)
class StoredFile:
    """What a listing tells of a file.

    Attributes:
        key: where it lies.
        bytes: its size.
        modified: when it was written, in seconds since 1970 by the clock of the store's machine.
    """

    key: str
    bytes: int
    modified: float


class ObjectStore(ABC):
    """Files under keys: parts of `[A-Za-z0-9._-]`, joined by `/`, never starting with a dot.

    No more is asked of an implementation than what every S3 server does: no conditional writes, no
    locks, no renames. Every method raises StoreError or one of its kinds when it fails, and then
    readers see what they saw before.

    Attributes:
        url: the store's address as a person wrote it.
        part_bytes: `put_file` moves larger files in parts of at least this size; 0 means never.
    """

    url: str
    part_bytes: int = 0

    @abstractmethod
    def put_file(self, source: Path, key: str, advance: Advance) -> None:
        """Stores the file under `key`, whole or not at all, taking up interrupted work."""

    @abstractmethod
    def get_file(self, key: str, destination: Path, size: int, advance: Advance) -> None:
        """Appends to `destination` what it lacks of the `size` bytes under `key`.

        Raises:
            NotInStore: there is nothing under `key`.
        """

    @abstractmethod
    def put_small(self, key: str, content: bytes) -> None:
        """Stores `content` under `key`; readers see the old bytes or the new ones."""

    @abstractmethod
    def read_small(self, key: str, limit: int) -> bytes:
        """The bytes under `key`.

        Raises:
            NotInStore: there is nothing under `key`.
            TooLarge: there are more than `limit` bytes.
        """

    @abstractmethod
    def list_files(self, prefix: str) -> list[StoredFile]:
        """The files whose keys start with `prefix`, sorted by key."""

    def list_keys(self, prefix: str) -> list[str]:
        """The keys that start with `prefix`, sorted."""
        return [file.key for file in self.list_files(prefix)]

    def link(self, key: str, name: str, content_type: str, seconds: int) -> str | None:  # noqa: ARG002
        """An address at which a browser gets the file for a while, or None where there is none.

        Args:
            key: of the file.
            name: what it is called when it is saved.
            content_type: what the browser is told that it is.
            seconds: how long the address is good.
        """
        return None

    @abstractmethod
    def abandon_uploads(self, before: float, ours: Callable[[str], bool]) -> int:
        """Removes what is left of uploads that began before `before` and were not finished.

        Who is at such an upload still notices, and begins anew.

        Args:
            before: seconds since 1970, by the clock of the store's machine.
            ours: whether an upload to this key may be removed.

        Returns:
            How many there were.
        """

    @abstractmethod
    def size_of(self, key: str) -> int | None:
        """How many bytes lie under `key`; None when there is nothing."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Removes what lies under `key`; nothing there is fine."""
