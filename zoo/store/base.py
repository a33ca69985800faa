"""What a store is built on: files under keys that can be written, in a folder or in a bucket."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from menagerie.store.base import Advance, Meter, ObjectReader, Progress, StoredFile, silent

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = [
    "HTML",
    "LINK_DAYS",
    "LINK_SECONDS",
    "Advance",
    "Meter",
    "ObjectStore",
    "Progress",
    "StoredFile",
    "content_type",
    "silent",
]

LINK_DAYS: Final = 7  # S3 gives no presigned address a longer life
LINK_SECONDS: Final = LINK_DAYS * 24 * 3600
HTML: Final = "text/html; charset=utf-8"


def content_type(name: str) -> str:
    """What a browser is told that a file is: a page is shown, anything else is saved."""
    return HTML if name.endswith(".html") else "application/octet-stream"


class ObjectStore(ObjectReader):
    """Files that can be written as well as read.

    No more is asked of an implementation than what every S3 server does: no conditional writes, no
    locks, no renames. When a method fails, readers see what they saw before.

    Attributes:
        part_bytes: `put_file` moves larger files in parts of at least this size; 0 means never.
        remark: what its owner should set, once that was found out.
    """

    part_bytes: int = 0
    remark: str = ""

    @abstractmethod
    def put_file(self, source: Path, key: str, advance: Advance) -> None:
        """Stores the file under `key`, whole or not at all."""

    @abstractmethod
    def put_small(self, key: str, content: bytes) -> None:
        """Stores `content` under `key`; readers see the old bytes or the new ones."""

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
        """Removes what is left of uploads that began at `before` or earlier and were not finished.

        An upload that is still going on begins anew.

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
