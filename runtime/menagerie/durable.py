"""Files that are complete or absent, whatever happens: hashing, syncing, atomic renaming.

POSIX guarantees that ``rename`` is atomic. For the new name to survive a power cut, the file needs
``fsync`` before it and the folder after it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from menagerie.errors import StoreError, StoreFull

_CHUNK = 2**20
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file's bytes, 64 lower-case hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def sync(path: Path) -> None:
    """Flush a file's bytes, or a folder's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(folder: Path) -> None:
    """Create `folder` and its missing parents, so that their names survive a power cut."""
    if folder.is_dir():
        return
    make_folders(folder.parent)
    folder.mkdir(exist_ok=True)
    sync(folder.parent)


def write_durably(path: Path, content: bytes, *, partial: Path) -> None:
    """Replace `path` by `content`: a reader sees the old bytes or the new ones, never a mixture.

    The bytes are first written to `partial` on the same file system; a link there is not
    followed.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with os.fdopen(os.open(partial, flags, 0o666), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    sync(path.parent)


@contextmanager
def disk_errors(place: str | Path, needed: int = 0) -> Iterator[None]:
    """Convert the operating system's errors about files under `place` into ours.

    Raise StoreFull if there is no space (of `needed` bytes) or quota, or a file exceeds the
    process's size limit, otherwise StoreError.
    """
    try:
        yield
    except OSError as error:
        raise _translated(error, str(place), needed) from error


def require_space(folder: Path, needed: int) -> None:
    """Raise StoreFull if the file system of `folder` has less than `needed` bytes free."""
    if _free(folder) < needed:
        raise _full(str(folder), needed)


def _translated(error: OSError, place: str, needed: int) -> StoreError:
    reason = (error.strerror or type(error).__name__).lower()
    if error.errno in _NO_SPACE:
        return _full(place, needed)
    if error.errno == errno.EFBIG:
        wanted = f" ({needed:,} bytes needed)" if needed else ""
        fact = f"a file grew above the size this process may write{wanted}"
        return StoreFull(place, fact, "Raise the limit (`ulimit -f`) and try again")
    if error.errno in _NOT_ALLOWED:
        return StoreError(place, f"cannot be used: {reason}", "Choose a place that you may use")
    where = f" ({error.filename})" if error.filename else ""
    return StoreError(place, f"{reason}{where}", "Check the folder and the disk, then try again")


def _full(place: str, needed: int) -> StoreFull:
    wanted = f"{needed:,} bytes needed, " if needed else ""
    fact = f"no space left: {wanted}{_free(Path(place)):,} free"
    return StoreFull(place, fact, "Free some space or choose a folder on another disk")


def _free(folder: Path) -> int:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free
