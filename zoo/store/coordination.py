"""Coordination of publishers, sweeps and converters by notes in the store, without locks.

A publisher first writes a note of the blobs that it relies on (`publishing/`), then checks whether
a sweep is removing one of them (`sweeping/`). A sweep first writes a note of the blobs that it is
about to remove, then checks which of them publishers rely on. Whatever the order, at least one of
them sees the other, because stores show a written object at once. Then the publisher waits, or the
sweep leaves the blob alone. These notes name candidates by their build keys.

A lease names the process that is converting a build. It only saves work: releases are correct
without it (see `releases`), so the store needs no conditional write. The holder renews its note
every few seconds. Another process watches the note and takes over when it has not changed for a
while *by its own clock*, so differing clocks do no harm. A dead holder is noticed then, or at once
if its process ran on this machine. If two processes take a free lease at the same moment, the last
writer has it; in the worst case both convert, and the first release to be published stays.
"""

from __future__ import annotations

import json
import logging
import platform
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, TypeAdapter, ValidationError

from menagerie.format.bundle_manifest import FileEntry
from menagerie.store.base import Meter, Progress, silent
from menagerie.store.layout import PUBLISHING, SWEEPING, blob_key, is_note_key, lease_key
from zoo.base_models import Frozen, Sha256
from zoo.errors import NotInStore, StoreError, TooLarge
from zoo.processes import Owner
from zoo.store.base import ObjectStore

_log = logging.getLogger(__name__)

_DIGESTS = TypeAdapter(list[Sha256])
_MAX_LIST_BYTES = 8 * 2**20
_WAIT_SECONDS = (0.5, 60.0)  # between two checks for a sweep, and in total
_MAX_BYTES = 4096
_LEAST_SETTLING = 0.05  # seconds: the other process may have to wait for a processor


@contextmanager
def announce(objects: ObjectStore, digests: Iterable[str]) -> Iterator[None]:
    """Announce blobs and candidates while the block runs, so that no sweep removes them.

    `digests` are the sha256 of files that are being published, or build keys of candidates. Raise
    StoreError if a sweep that removes one of them does not end in time.
    """
    wanted = sorted(set(digests))
    note = f"{PUBLISHING}{uuid.uuid4().hex}.json"
    objects.put_small(note, json.dumps(wanted).encode())
    try:
        _await_sweeps(objects, set(wanted))
        yield
    finally:
        with suppress(StoreError):
            objects.delete(note)


class PlainFile(Frozen):
    """A file of a folder that is not a bundle."""

    sha256: Sha256
    bytes: int = Field(ge=0)


@contextmanager
def publishing(
    objects: ObjectStore,
    folder: Path,
    files: Mapping[str, FileEntry | PlainFile],
    progress: Progress = silent,
) -> Iterator[None]:
    """Announce a folder's files while the block runs, and store the missing ones as blobs.

    The block writes the document that names them; `progress` gets bytes done and bytes in total.
    """
    meter = Meter(sum(entry.bytes for entry in files.values()), progress)
    with announce(objects, (entry.sha256 for entry in files.values())):
        for name, entry in files.items():
            key = blob_key(entry.sha256)
            if objects.size_of(key) == entry.bytes:
                meter.advance(entry.bytes)
            else:
                objects.put_file(folder / name, key, meter.advance)
        yield


@contextmanager
def sweeping(objects: ObjectStore, digests: Iterable[str]) -> Iterator[set[str]]:
    """Announce removals while the block runs; yield the digests that must stay."""
    flag = f"{SWEEPING}{uuid.uuid4().hex}.json"
    objects.put_small(flag, json.dumps(list(digests)).encode())
    try:
        yield noted(objects)
    finally:
        objects.delete(flag)


def _await_sweeps(objects: ObjectStore, wanted: set[str]) -> None:
    pause, longest = _WAIT_SECONDS
    end = time.monotonic() + longest
    while noted(objects, SWEEPING) & wanted:
        if time.monotonic() > end:
            raise StoreError(
                objects.url,
                "files of this bundle are being swept and the sweep does not end",
                "If no `zoo release gc` is running, remove what is under sweeping/ and try again",
            )
        time.sleep(pause)


def noted(objects: ObjectStore, prefix: str = PUBLISHING) -> set[str]:
    """Return all digests in current notes, by default those of publishers."""
    found: set[str] = set()
    for key in filter(is_note_key, objects.list_keys(prefix)):
        try:
            found.update(_DIGESTS.validate_json(objects.read_small(key, _MAX_LIST_BYTES)))
        except NotInStore:  # its writer has finished
            continue
        except (TooLarge, ValidationError):  # not written by us; a sweep removes old ones
            _log.warning("left out: %s/%s is no list of digests", objects.url, key)
    return found


@dataclass(frozen=True)
class LeaseTiming:
    """Intervals at which a lease is renewed and read, in seconds unless stated otherwise."""

    renew: float = 10.0
    look: float = 5.0
    dead: float = 45.0  # the holder of a lease unchanged for this long is gone
    longest: float = 6 * 3600.0  # in total: a note that keeps changing is forged
    # The pause between writing a note and reading it back, as a multiple of the time that the write
    # took; at most `renew`.
    settle: float = 4.0


class _Note(Frozen):
    owner: str
    host: str  # for messages
    process: Owner
    beat: int


@contextmanager
def hold_lease(
    objects: ObjectStore,
    build_key: str,
    patience: LeaseTiming | None = None,
    waiting: Callable[[str], None] = lambda _: None,
) -> Iterator[bool]:
    """Hold the lease of a build while the block runs; wait until it is free.

    `waiting` is called once with the holder, e.g. `process 12 on host`, before the wait begins.
    Yield whether another process held it: then the release may exist by now. Raise StoreError
    if the store cannot be reached.
    """
    patience = patience or LeaseTiming()
    key = lease_key(build_key)
    mine = _Note(owner=uuid.uuid4().hex, host=platform.node(), process=Owner.this(), beat=0)
    waited = _acquire(objects, key, mine, patience, waiting)
    ended = threading.Event()
    keeper = threading.Thread(
        target=_renew, args=(objects, key, mine, patience, ended), daemon=True
    )
    keeper.start()
    try:
        yield waited
    finally:
        ended.set()
        keeper.join()
        with suppress(StoreError):  # waiting processes will see that it is not renewed
            note = _read(objects, key)
            if note is not None and note.owner == mine.owner:
                objects.delete(key)


def _acquire(
    objects: ObjectStore,
    key: str,
    mine: _Note,
    patience: LeaseTiming,
    waiting: Callable[[str], None],
) -> bool:
    waited, end = False, time.monotonic() + patience.longest
    seen, since = _read(objects, key), time.monotonic()
    while True:
        dead = seen is not None and seen.process.lives() is False
        now = time.monotonic()
        free = seen is None or dead or now - since > patience.dead or now > end
        if free:
            objects.put_small(key, mine.model_dump_json().encode())
            # By then, another process that saw it free at the same time has written its note.
            settling = max(_LEAST_SETTLING, patience.settle * (time.monotonic() - now))
            time.sleep(min(settling, patience.renew))
            seen, since = _read(objects, key), time.monotonic()
            if seen is None or seen.owner == mine.owner or now > end:
                return waited
        elif seen is not None:
            if not waited:
                waiting(f"process {seen.process.pid} on {seen.host}")
            waited = True
            time.sleep(patience.look)
            if (later := _read(objects, key)) != seen:
                seen, since = later, time.monotonic()


def _renew(
    objects: ObjectStore, key: str, mine: _Note, patience: LeaseTiming, ended: threading.Event
) -> None:
    beat = 0
    while not ended.wait(patience.renew):
        beat += 1
        note = mine.model_copy(update={"beat": beat})
        with suppress(StoreError):  # a brief outage, or else the publication will fail
            objects.put_small(key, note.model_dump_json().encode())


def _read(objects: ObjectStore, key: str) -> _Note | None:
    return objects.read_record(key, _MAX_BYTES, _Note)
