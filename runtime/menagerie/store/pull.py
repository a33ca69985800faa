"""Downloading a release: resumed where it stopped, checked before it appears."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

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
from menagerie.format.folder import open_bundle
from menagerie.format.paths import MANIFEST, PARTIAL, SIGNATURE
from menagerie.store.layout import blob_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from menagerie.format.bundle_manifest import BundleManifest, FileEntry
    from menagerie.store.base import Advance, Meter, ObjectReader
    from menagerie.store.cache import BlobCache
    from menagerie.store.release import Release

__all__ = ["foreign", "private_folder", "pull_bundle", "reached_by", "umask"]

_AT_A_TIME = 4  # files: one connection seldom takes all that a line gives


def pull_bundle(
    objects: ObjectReader,
    release: Release,
    signature: Callable[[], bytes | None],
    folder: Path,
    meter: Meter,
    *,
    cache: BlobCache | None = None,
) -> Path:
    """Makes `folder` the bundle that the release's manifest describes, with its signature.

    Files gather in a hidden folder beside it, named after the build; a later call finds them there.
    What `cache` has is not downloaded; what is, goes there as well.
    """
    manifest, document = release.manifest, release.document
    folder = Path(os.path.normpath(folder.absolute()))  # `.` has no name
    total = manifest.size
    if _is_there(folder, document):
        _complete(folder, signature())
        meter.advance(total)
        return folder
    _require_place(folder)
    partial = folder.with_name(f".{folder.name}.{manifest.build_key[:16]}.partial")
    with disk_errors(folder.parent, total):
        make_folders(folder.parent)
        with private_folder(partial) as descriptor, _alone(descriptor, partial):
            inner = reached_by(descriptor, partial)
            _remove_strangers(inner, manifest)
            require_space(inner, total - _gathered(inner))
            _fetch_all(objects, inner, manifest, meter, cache)
            _complete(inner, signature())
            write_durably(inner / MANIFEST, document, partial=inner / PARTIAL)
            open_bundle(inner, check_hashes=False)
            os.fchmod(descriptor, 0o777 & ~umask())
            partial.replace(folder)
            if not os.path.samestat(folder.lstat(), os.fstat(descriptor)):
                raise foreign(folder, "was put there by somebody else during the pull")
            sync(folder.parent)
    return folder


class _Stopped(Exception):
    """Another file's download failed, or somebody interrupted: this one goes no further."""


def _fetch_all(
    objects: ObjectReader,
    partial: Path,
    manifest: BundleManifest,
    meter: Meter,
    cache: BlobCache | None,
) -> None:
    """Fetches files side by side; whatever fails ends all of them, and what is there stays."""
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
        if _fetch(objects, path, entry, advance) and cache is not None:
            cache.take(entry, path)

    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        futures = [pool.submit(fetch, name, entry) for name, entry in manifest.listed.items()]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _fetch(objects: ObjectReader, path: Path, entry: FileEntry, advance: Advance) -> bool:
    """Completes one file and checks it; a resumed file that is wrong is fetched anew, once.

    Returns:
        Whether anything of it came from the store.
    """
    resumed = path.stat().st_size if path.exists() else 0
    advance(resumed)
    objects.get_file(blob_key(entry.sha256), path, entry.bytes, advance)
    if resumed and sha256_of(path) != entry.sha256:
        advance(-path.stat().st_size)
        path.unlink()
        resumed = 0
        objects.get_file(blob_key(entry.sha256), path, entry.bytes, advance)
    if path.stat().st_size != entry.bytes or sha256_of(path) != entry.sha256:
        path.unlink()
        raise HashMismatch(
            f"{objects.url}/{blob_key(entry.sha256)}",
            "the store's bytes are not the ones that were published",
            "Remove that file from the store and publish the release again",
        )
    sync(path)
    return resumed < entry.bytes


def _require_place(folder: Path) -> None:
    require_free_place(folder)
    if folder.is_dir() and folder.samefile(Path.cwd()):
        raise UsageError(
            str(folder),
            "is the current folder, and a pull puts a new one in its place",
            "Name a folder in it, e.g. `-o bundle`",
        )


def _is_there(folder: Path, document: bytes) -> bool:
    """Whether `folder` is this very release, sound to the last byte."""
    try:
        return (folder / MANIFEST).is_file() and open_bundle(folder).document == document
    except ArtifactError:
        return False


def _complete(folder: Path, signature: bytes | None) -> None:
    """Puts the signature beside the manifest, where there is one."""
    if signature is not None:
        with disk_errors(folder):
            write_durably(folder / SIGNATURE, signature, partial=folder / PARTIAL)


def _remove_strangers(partial: Path, manifest: BundleManifest) -> None:
    """An earlier pull may have been of another document of the same build."""
    for parent, folders, names in os.walk(partial):
        for name in folders:
            if (Path(parent) / name).is_symlink():
                (Path(parent) / name).unlink()
        for name in names:
            path = Path(parent) / name
            entry = manifest.listed.get(path.relative_to(partial).as_posix())
            if entry is None or path.is_symlink() or _is_odd(path.lstat(), entry):
                path.unlink()


def _is_odd(status: os.stat_result, entry: FileEntry) -> bool:
    """Whether what was gathered has another name elsewhere too, or is longer than it may be."""
    return status.st_nlink > 1 or status.st_size > entry.bytes


def _gathered(partial: Path) -> int:
    return sum(path.stat().st_size for path in partial.rglob("*") if path.is_file())


@contextmanager
def private_folder(partial: Path) -> Iterator[int]:
    """A descriptor of the folder in which files gather: this user's, and for him alone.

    Where others may write beside it they can put a link or a folder of their own there, before the
    pull or during it. A link is removed; what belongs to somebody else is refused.
    """
    if partial.is_symlink():
        partial.unlink()  # whoever put it there, what it leads to is not ours to write
    partial.mkdir(mode=0o700, exist_ok=True)
    try:
        descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:
            raise foreign(partial, "is a link that somebody has put there") from None
        raise
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise foreign(partial, "belongs to another user")
        os.fchmod(descriptor, 0o700)
        yield descriptor
    finally:
        os.close(descriptor)


def foreign(place: Path, fact: str) -> StoreError:
    """What is said of a folder that somebody else has his hands in."""
    return StoreError(str(place), fact, "Pull into a folder that only you may write")


def reached_by(descriptor: int, partial: Path) -> Path:
    """The opened folder by a path that nobody can turn elsewhere, where the system has such."""
    through = Path(f"/proc/self/fd/{descriptor}")
    return through if through.exists() else partial


def umask() -> int:
    """What this process takes from the rights of what it makes."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


@contextmanager
def _alone(descriptor: int, partial: Path) -> Iterator[None]:
    """Holds the folder against a second pull into the same place."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreError(
            str(partial), "another process is pulling into this place", "Wait for it"
        ) from None
    yield
