"""The interface for reading a store: files by key, in a folder, a bucket or on a web server."""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from menagerie.durable import disk_errors
from menagerie.errors import InvalidKey, NotInStore, StoreUnreachable, TooLarge

MOST_KEYS = 2_000_000  # below one prefix: a server that lists more never ends
MOST_PAGES = 20_000  # of such a listing; S3 returns up to 1,000 keys per page
Progress = Callable[[int, int], None]  # bytes done, total bytes
Advance = Callable[[int], None]  # bytes moved since the last call; negative if data was lost
Parts = Iterator[tuple[int, bytes]]  # of a file, each with its offset
INCOMING = "incoming"  # a folder of the store for incoming files; not a part of any key
CHUNK = 2**20


def silent(done: int, total: int) -> None:
    """Ignore the progress."""


class Meter:
    """A counter of several threads' bytes that makes one progress call at a time."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._lock = threading.Lock()
        self._done = 0
        self._total = total
        self._progress = progress
        progress(0, total)

    def advance(self, count: int) -> None:
        """Add `count` bytes to those done."""
        with self._lock:
            self._done += count
            self._progress(self._done, self._total)


@dataclass(frozen=True)
class StoredFile:
    """A file in a listing."""

    key: str  # where the file is stored
    bytes: int  # its size
    # When it was written, in seconds since 1970 by the clock of the store's machine.
    modified: float


class ObjectReader(ABC):
    """Files by keys: parts of `[A-Za-z0-9._-]`, joined by `/`, never starting with a dot.

    Every method raises StoreError or a subclass if it fails. `url` is the store's address as a
    person wrote it, without secrets.
    """

    url: str

    @property
    def place(self) -> str:
        """The address, with the server if the address alone does not identify it."""
        return self.url

    def require(self) -> None:
        """Raise NotInStore if the store does not exist; an empty store exists."""

    @property
    def pauses(self) -> Sequence[float]:
        """Seconds to wait before each further attempt to continue with a file."""
        return ()

    @abstractmethod
    def parts(self, key: str, start: int = 0, end: int | None = None) -> Parts:
        """Yield the bytes under `key` with their offsets, in chunks, from `start` up to `end`.

        A store that cannot begin at `start` begins at 0, and may continue beyond `end`. Raise
        NotInStore if nothing is stored under `key`.
        """

    def get_file(self, key: str, destination: Path, size: int, advance: Advance) -> None:
        """Append to `destination` the bytes that it lacks of the `size` bytes under `key`.

        Request the rest if the connection breaks. Raise NotInStore if nothing is stored there.
        """
        with disk_errors(destination.parent, size):
            for pause in (*self.pauses, None):
                try:
                    self._append(key, destination, size, advance)
                except StoreUnreachable:
                    if pause is None:
                        raise
                    time.sleep(pause)
                else:
                    return

    def _append(self, key: str, destination: Path, size: int, advance: Advance) -> None:
        with destination.open("ab") as file:
            if (held := file.tell()) >= size:
                return
            for place, part in self.parts(key, held, size):
                if place < held:  # the store sent the file from the start
                    file.truncate(place)
                    advance(place - held)
                    held = place
                wanted = part[: size - held]
                file.write(wanted)
                advance(len(wanted))
                held += len(wanted)
                if held == size:
                    return

    def read_small(self, key: str, limit: int) -> bytes:
        """Read the bytes under `key`; raise NotInStore if absent, TooLarge beyond `limit`."""
        content = b""
        for _, part in self.parts(key):
            content += part
            if len(content) > limit:
                fact = f"more than {limit:,} bytes"
                raise TooLarge(f"{self.url}/{key}", fact, "Remove it, or tell its owner")
        return content

    def read_if_there(self, key: str, limit: int) -> bytes | None:
        """Return the bytes under `key`; None if they are absent or more than `limit`."""
        try:
            return self.read_small(key, limit)
        except (NotInStore, TooLarge):
            return None

    def list_files(self, prefix: str) -> list[StoredFile] | None:  # noqa: ARG002
        """Return files whose keys start with `prefix`, by key; None if the store has no listing."""
        return None

    def list_keys(self, prefix: str) -> list[str] | None:
        """Return the keys that start with `prefix`, sorted; None if the store cannot list them."""
        files = self.list_files(prefix)
        return None if files is None else [file.key for file in files]


class FolderReader(ObjectReader):
    """A store in a folder; keys are paths under `root`."""

    def __init__(self, root: Path, url: str = "") -> None:
        self.url = url or str(root)
        self._root = root

    def require(self) -> None:
        """Raise NotInStore if the folder does not exist."""
        if not self._root.is_dir():
            advice = "Check the address; `zoo convert` makes a store where there is none"
            raise NotInStore(self.url, "there is no such folder", advice)

    def parts(self, key: str, start: int = 0, end: int | None = None) -> Parts:  # noqa: ARG002 - it may give more
        """Read from `start` to the end."""
        with disk_errors(self.url):
            try:
                file = self._path(key).open("rb")
            except FileNotFoundError:
                fact = "there is no such file"
                raise NotInStore(f"{self.url}/{key}", fact, "Publish it again") from None
            with file:
                file.seek(start)
                while part := file.read(CHUNK):
                    yield file.tell() - len(part), part

    def list_files(self, prefix: str) -> list[StoredFile]:
        """Return the files whose keys start with `prefix`, sorted by key."""
        folder = prefix.rpartition("/")[0]
        top = self._path(folder) if folder else self._root
        found = []
        with disk_errors(self.url):
            for parent, _, names in os.walk(top, onerror=_unless_absent):
                place = Path(parent).relative_to(self._root).as_posix()
                for name in names:
                    key = name if place == "." else f"{place}/{name}"
                    if key.startswith(prefix) and not key.startswith(f"{INCOMING}/"):
                        with suppress(FileNotFoundError):  # removed during the walk
                            status = (self._root / key).stat()
                            found.append(StoredFile(key, status.st_size, status.st_mtime))
        return sorted(found, key=lambda file: file.key)

    def _path(self, key: str) -> Path:
        if any(part in {"", ".", ".."} for part in key.split("/")):
            step = "Correct the model, target, platform or build that was named"
            raise InvalidKey(self.url, f"{key!r} is not a key of a store", step)
        return self._root / key


def _unless_absent(error: OSError) -> None:
    """Raise the error, unless a folder never existed or vanished during the walk."""
    if not isinstance(error, FileNotFoundError):
        raise error
