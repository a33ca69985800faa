"""Download of a release: resumable, verified before it appears, with a cache of files by content.

Cached files are copied, without rewriting their bytes if the file system can share them, so
changing one bundle changes no other.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

from menagerie.durable import (
    disk_errors,
    make_folders,
    require_space,
    sha256_of,
    sync,
    write_durably,
)
from menagerie.errors import ArtifactError, HashMismatch, StoreError, UsageError
from menagerie.format.archive import require_free_place
from menagerie.format.bundle_manifest import MANIFEST, PARTIAL, BundleManifest, FileEntry
from menagerie.format.folder import open_bundle
from menagerie.paths import home
from menagerie.store.base import Advance, Meter, ObjectReader
from menagerie.store.layout import blob_key

_AT_A_TIME = 4  # files: one connection rarely uses the whole bandwidth
CACHE_GB = "MENAGERIE_CACHE_GB"
_DEFAULT_GB = 10.0
_LEAST = 64 * 2**10  # bytes: for a smaller file the request costs as much as the content
_PUBLISHED = "the ones that were published"
_CLONE = 0x40049409  # FICLONE in linux/fs.h


def pull_bundle(
    objects: ObjectReader,
    manifest: BundleManifest,
    document: bytes,
    folder: Path,
    *,
    beside: Mapping[str, bytes],
    meter: Meter,
    cache: BlobCache | None,
    wanted: Mapping[str, FileEntry],
) -> Path:
    """Make `folder` the bundle of a manifest, with its document and the signatures `beside`.

    Only the files whose paths are in `wanted` are downloaded.

    A hidden folder next to it, named after the build, collects the files, so that a later call
    resumes there. Files in `cache` are not downloaded; downloaded ones are added to it.
    """
    folder = Path(os.path.normpath(folder.absolute()))  # `.` has no name
    size = sum(entry.bytes for entry in wanted.values())
    if _is_there(folder, document, wanted):
        _complete(folder, beside)
        meter.advance(size)
        return folder
    require_free_place(folder)
    if folder.is_dir() and folder.samefile(Path.cwd()):
        fact = "is the current folder, and a pull puts a new one in its place"
        raise UsageError(str(folder), fact, "Name a folder in it, e.g. `-o bundle`")
    partial = folder.with_name(f".{folder.name}.{manifest.build_key[:16]}.partial")
    with disk_errors(folder.parent, size):
        make_folders(folder.parent)
        with appearing(folder, partial) as inner:
            _remove_strangers(inner, manifest)
            gathered = sum(path.stat().st_size for path in inner.rglob("*") if path.is_file())
            require_space(inner, size - gathered)
            _fetch_all(objects, inner, wanted, meter, cache)
            _complete(inner, beside)
            write_durably(inner / MANIFEST, document, partial=inner / PARTIAL)
            open_bundle(inner, check_hashes=False)
    return folder


class _Stopped(Exception):
    """Raised to stop a download because another one failed or was interrupted."""


def _fetch_all(
    objects: ObjectReader,
    partial: Path,
    wanted: Mapping[str, FileEntry],
    meter: Meter,
    cache: BlobCache | None,
) -> None:
    """Fetch files in parallel; one failure stops all downloads, and received bytes are kept."""
    stopped = threading.Event()

    def advance(count: int) -> None:
        if stopped.is_set():
            raise _Stopped
        meter.advance(count)

    def fetch(name: str, entry: FileEntry) -> None:
        path = partial / name
        make_folders(path.parent)
        if cache is not None and not path.exists():
            cache.give(entry, path)
        if fetch_blob(objects, path, entry, advance) and cache is not None:
            cache.take(entry, path)

    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        futures = [pool.submit(fetch, name, entry) for name, entry in wanted.items()]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def fetch_blob(
    objects: ObjectReader, path: Path, entry: FileEntry, advance: Advance, wanted: str = _PUBLISHED
) -> bool:
    """Complete and verify a file, refetching a wrong one; return whether bytes were fetched."""
    resumed = path.stat().st_size if path.exists() else 0
    advance(resumed)
    objects.get_file(blob_key(entry.sha256), path, entry.bytes, advance)
    if resumed and sha256_of(path) != entry.sha256:
        advance(-path.stat().st_size)
        path.unlink()
        return fetch_blob(objects, path, entry, advance, wanted)
    if path.stat().st_size != entry.bytes or sha256_of(path) != entry.sha256:
        path.unlink()
        fact = f"the store's bytes are not {wanted}"
        advice = "Remove that file from the store and publish or submit again"
        raise HashMismatch(f"{objects.url}/{blob_key(entry.sha256)}", fact, advice)
    sync(path)
    return resumed < entry.bytes


def _is_there(folder: Path, document: bytes, wanted: Iterable[str]) -> bool:
    """Return whether `folder` is exactly this release, undamaged and owned by this user."""
    try:
        if folder.is_dir() and folder.stat().st_uid != os.geteuid():
            return False
        if not (folder / MANIFEST).is_file() or open_bundle(folder).document != document:
            return False
        return all((folder / name).exists() for name in wanted)
    except ArtifactError:
        return False


def _complete(folder: Path, beside: Mapping[str, bytes]) -> None:
    with disk_errors(folder):
        for name, content in beside.items():
            write_durably(folder / name, content, partial=folder / PARTIAL)


def _remove_strangers(partial: Path, manifest: BundleManifest) -> None:
    """Remove files of an earlier pull of the same build with another document."""
    for parent, folders, names in os.walk(partial):
        for path in (Path(parent) / name for name in [*folders, *names]):
            entry, status = manifest.listed.get(path.relative_to(partial).as_posix()), path.lstat()
            # A file with a hard link, or one larger than it may be, was not downloaded by a pull.
            sound = entry and status.st_nlink == 1 and status.st_size <= entry.bytes
            if path.is_symlink() or not (sound or path.is_dir()):
                path.unlink()


@contextmanager
def appearing(folder: Path, partial: Path) -> Iterator[Path]:
    """Yield a private folder for the files; it becomes `folder` if the block succeeds.

    Files that an interrupted call left in the neighbouring `partial` are reused. Raise StoreError
    if another process uses it, or another user has put something there.
    """
    with _private_folder(partial) as descriptor:
        through = Path(f"/proc/self/fd/{descriptor}")  # a path that nobody can redirect
        yield through if through.exists() else partial
        mask = os.umask(0o077)
        os.umask(mask)
        os.fchmod(descriptor, 0o777 & ~mask)
        partial.replace(folder)
        if not os.path.samestat(folder.lstat(), os.fstat(descriptor)):
            raise _foreign(folder, "was put there by another process during the pull")
    sync(folder.parent)


@contextmanager
def _private_folder(partial: Path) -> Iterator[int]:
    """Open the folder that collects files; only this user may read or write it.

    Users who may write next to it could put a link or a folder of their own there, before or
    during the pull. A link is removed; another user's file is refused, and so is a second pull
    into the same place.
    """
    if partial.is_symlink():
        partial.unlink()  # its target is not ours to write
    partial.mkdir(mode=0o700, exist_ok=True)
    try:
        descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:
            raise _foreign(partial, "is a link, which the pull has not made") from None
        raise
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise _foreign(partial, "belongs to another user")
        os.fchmod(descriptor, 0o700)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fact = "another process is pulling into this place"
            raise StoreError(str(partial), fact, "Wait for it") from None
        yield descriptor
    finally:
        os.close(descriptor)


def _foreign(place: Path, fact: str) -> StoreError:
    return StoreError(str(place), fact, "Pull into a folder that only you may write")


class BlobCache:
    """A size-limited cache of files by sha256; the least recently used are removed first.

    A cache that cannot be read or written counts as empty, so that it never fails a pull. Its files
    are not trusted: a pull checks their sha256 like that of downloaded files.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self._folder = folder
        self._most = most

    @classmethod
    def of_this_user(cls) -> BlobCache:
        """Return this user's cache of $MENAGERIE_CACHE_GB gigabytes (10 if unset)."""
        try:
            most = float(os.environ.get(CACHE_GB, _DEFAULT_GB))
        except ValueError:
            most = _DEFAULT_GB
        return cls(home() / "downloads", int(max(0.0, min(most, 1e9)) * 10**9))

    def give(self, entry: FileEntry, path: Path) -> None:
        """Copy the file to `path` if the cache has it with the right size."""
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
        """Add a verified file, replacing the least recently used ones."""
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
    """Set a file's time of use to now; the file system's clock is coarser."""
    now = time.time_ns()
    os.utime(path, ns=(now, now))


def _copy(source: Path, target: Path) -> None:
    """Copy a file, sharing its blocks where the file system can (Btrfs, XFS)."""
    with source.open("rb") as one, target.open("wb") as two:
        try:
            fcntl.ioctl(two.fileno(), _CLONE, one.fileno())
        except OSError:
            shutil.copyfileobj(one, two, 2**20)
