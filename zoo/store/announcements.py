"""What somebody counts on, and what a sweep is about to remove: notes instead of locks.

A publisher first writes down which blobs it counts on (`publishing/`), then looks whether a sweep
is removing one of them (`sweeping/`). A sweep first writes down which blobs it is about to remove,
then looks which ones are counted on. Whatever the order in which the two do it, one of them sees
the other: stores show a written object at once. The publisher then waits, or the sweep leaves the
blob alone. Candidates stand in such notes by their build keys.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from menagerie.store.layout import PUBLISHING, SWEEPING, is_note_key
from zoo.errors import NotInStore, StoreError, TooLarge
from zoo.spec_base import Sha256

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from zoo.store.base import ObjectStore

__all__ = ["announce", "counted_on", "sweeping"]

_log = logging.getLogger(__name__)

_DIGESTS = TypeAdapter(list[Sha256])
_MAX_LIST_BYTES = 8 * 2**20
_WAIT_SECONDS = (0.5, 60.0)  # between two looks at a sweep, and in all


@contextmanager
def announce(objects: ObjectStore, digests: Iterable[str]) -> Iterator[None]:
    """Counts on blobs and candidates while the block runs: no sweep removes them.

    Args:
        objects: the store.
        digests: sha256 of the files of the bundle that is being published; a candidate's build key.

    Raises:
        StoreError: a sweep that is removing one of them does not end.
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


@contextmanager
def sweeping(objects: ObjectStore, digests: Iterable[str]) -> Iterator[set[str]]:
    """Says that these are being removed while the block runs; gives what must be left alone."""
    flag = f"{SWEEPING}{uuid.uuid4().hex}.json"
    objects.put_small(flag, json.dumps(list(digests)).encode())
    try:
        yield counted_on(objects)
    finally:
        objects.delete(flag)


def counted_on(objects: ObjectStore) -> set[str]:
    """What is announced just now."""
    return _noted(objects, PUBLISHING)


def _await_sweeps(objects: ObjectStore, wanted: set[str]) -> None:
    pause, longest = _WAIT_SECONDS
    end = time.monotonic() + longest
    while _noted(objects, SWEEPING) & wanted:
        if time.monotonic() > end:
            raise StoreError(
                objects.url,
                "files of this bundle are being swept and the sweep does not end",
                "If no `zoo gc` is running, remove what lies under sweeping/ and try again",
            )
        time.sleep(pause)


def _noted(objects: ObjectStore, prefix: str) -> set[str]:
    """All digests in the notes under `prefix`."""
    found: set[str] = set()
    for key in filter(is_note_key, objects.list_keys(prefix)):
        try:
            found.update(_DIGESTS.validate_json(objects.read_small(key, _MAX_LIST_BYTES)))
        except NotInStore:  # its writer is done
            continue
        except (TooLarge, ValidationError):  # no writer's; old ones go with a sweep
            _log.warning("left out: %s/%s is no list of digests", objects.url, key)
    return found
