"""The client of The Update Framework for a store: checks that metadata is fresh and consistent.

It needs the extra `tuf`, and keeps what it knows of a store under `menagerie.paths.home`.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import time
from collections.abc import Iterator
from pathlib import Path

from tuf.api.exceptions import DownloadError, DownloadHTTPError, RepositoryError
from tuf.ngclient import FetcherInterface, Updater, UpdaterConfig

from menagerie.durable import disk_errors, write_durably
from menagerie.errors import NotInStore, StoreError, TooLarge, Untrusted
from menagerie.paths import home
from menagerie.store.base import ObjectReader
from menagerie.store.layout import METADATA
from menagerie.trust.ledger import MAX_LEDGER_BYTES
from menagerie.trust.roots import MAX_ROOT_BYTES, TrustRoot, parse_root, trusted_place

_LIMITS = UpdaterConfig(
    max_root_rotations=64,
    root_max_length=MAX_ROOT_BYTES,
    timestamp_max_length=16 * 2**10,
    snapshot_max_length=64 * 2**10,
    targets_max_length=8 * 2**20,
    prefix_targets_with_hash=False,
)
_ANEW = (0.2, 1.0)  # seconds before another attempt, in case a promotion is in progress
_GONE = 404
_ADVICE = "Trust its owner's root: `menagerie trust root.json`"
_OLD = "The store shows an old or a foreign state: tell its owner"


class _Fetcher(FetcherInterface):
    """A reader of metadata through the store, within size limits."""

    def __init__(self, objects: ObjectReader) -> None:
        self._objects = objects
        self.failure: StoreError | None = None  # TUF's own errors hide the cause

    def _fetch(self, url: str) -> Iterator[bytes]:
        try:
            yield self._objects.read_small(METADATA + url.rpartition("/")[2], 8 * 2**20)
        except NotInStore:
            raise DownloadHTTPError("absent", _GONE) from None
        except TooLarge as error:
            raise DownloadError(str(error)) from error
        except StoreError as error:
            self.failure = error
            raise


def current_ledger(
    objects: ObjectReader, key: str, roots: tuple[TrustRoot, ...], place: str
) -> tuple[bytes, tuple[TrustRoot, ...]]:
    """Return the bytes of a ledger that the store's metadata names, and the current root.

    Raise NotInStore if the metadata names no ledger, Untrusted if no trusted root leads to it, if
    it has expired, is older than seen before, or does not match itself or the ledger.
    """
    faults: list[Untrusted] = []
    for root in roots:
        for pause in (*_ANEW, None):
            try:
                return _from(objects, key, root, place)
            except Untrusted as error:
                if pause is None or not error.next_step:
                    faults.append(error)
                    break
                time.sleep(pause)
    raise faults[0] if faults else Untrusted(place, "no root is trusted here", _ADVICE)


def _from(
    objects: ObjectReader, key: str, root: TrustRoot, place: str
) -> tuple[bytes, tuple[TrustRoot, ...]]:
    store = hashlib.sha256(f"{objects.url}\n{root.place}".encode()).hexdigest()[:32]
    folder = home() / "tuf" / store
    fetcher = _Fetcher(objects)
    with disk_errors(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    with disk_errors(folder), lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process at a time: tuf unlinks and links its files
        try:
            updater = Updater(
                str(folder),
                "store:/metadata/",
                fetcher=fetcher,
                config=_LIMITS,
                bootstrap=root.document,
            )
            updater.refresh()
            listed = updater.get_targetinfo(key)
        except (RepositoryError, DownloadError, ValueError) as error:
            if fetcher.failure is not None:
                raise fetcher.failure from None
            raise Untrusted(place, f"the store's metadata are refused: {error}", "") from None
        today = _follow(folder, root)
    if listed is None:
        raise NotInStore(place, "the store's metadata name no such ledger", "Check the name")
    try:
        content = objects.read_small(key, min(listed.length, MAX_LEDGER_BYTES))
        listed.verify_length_and_hashes(content)
    except (RepositoryError, TooLarge, ValueError) as error:
        raise Untrusted(place, f"is not what the metadata name: {error}", _OLD) from None
    return content, (today,)


def _follow(folder: Path, root: TrustRoot) -> TrustRoot:
    """Return the current root; if a later one was found, it replaces the trusted one."""
    path = folder / "root.json"
    today = parse_root(path.read_bytes(), str(path))
    kept = Path(root.place)
    if today.version > root.version and kept.parent == trusted_place():
        write_durably(kept, today.document, partial=kept.with_suffix(".partial"))
        logging.getLogger(__name__).info("%s: root %d now counts", kept, today.version)
    return today
