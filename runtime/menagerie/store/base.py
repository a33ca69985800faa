"""What a store is read through: files under keys, in a folder, a bucket, or behind a web server."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "MOST_KEYS",
    "MOST_PAGES",
    "Advance",
    "Meter",
    "ObjectReader",
    "Progress",
    "StoredFile",
    "silent",
]

MOST_KEYS = 2_000_000  # below one prefix: who lists more has no end
MOST_PAGES = 20_000  # in which they come; S3 has up to 1,000 on one, and an endless server none
Progress = Callable[[int, int], None]  # bytes done, bytes in all
Advance = Callable[[int], None]  # bytes moved since the last call; negative when work was lost


def silent(done: int, total: int) -> None:
    """The progress that nobody watches."""


class Meter:
    """Adds up what threads move, and tells a progress callback, one call at a time."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._lock = threading.Lock()
        self._done = 0
        self._total = total
        self._progress = progress
        progress(0, total)

    def advance(self, count: int) -> None:
        """Counts `count` more bytes as done."""
        with self._lock:
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


class ObjectReader(ABC):
    """Files under keys: parts of `[A-Za-z0-9._-]`, joined by `/`, never starting with a dot.

    Every method raises StoreError or one of its kinds when it fails.

    Attributes:
        url: the store's address as a person wrote it, without secrets.
    """

    url: str

    @property
    def place(self) -> str:
        """The address, and whose server it means where the address alone does not say."""
        return self.url

    @abstractmethod
    def get_file(self, key: str, destination: Path, size: int, advance: Advance) -> None:
        """Appends to `destination` what it lacks of the `size` bytes under `key`, and no more.

        Raises:
            NotInStore: there is nothing under `key`.
        """

    @abstractmethod
    def read_small(self, key: str, limit: int) -> bytes:
        """The bytes under `key`.

        Raises:
            NotInStore: there is nothing under `key`.
            TooLarge: there are more than `limit` bytes.
        """

    @abstractmethod
    def list_files(self, prefix: str) -> list[StoredFile] | None:
        """The files whose keys start with `prefix`, sorted by key; None where nothing is listed."""

    def list_keys(self, prefix: str) -> list[str] | None:
        """The keys that start with `prefix`, sorted; None where none can be listed."""
        files = self.list_files(prefix)
        return None if files is None else [file.key for file in files]
