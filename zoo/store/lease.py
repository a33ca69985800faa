"""Who converts a build just now, so that two workers need not do the same work.

A lease only saves work: releases are right without it (see `releases`), so no conditional write is
asked of the store. The holder renews its note every few seconds. Another process watches the note
and takes over when it has not changed for a while *by its own clock*: clocks that differ do no
harm, and a holder that died is noticed, at once where its process could be seen from here. Where
two take a free lease in the same moment, the last writer has it; in the worst case both convert,
and the release of the first to publish stays.
"""

from __future__ import annotations

import platform
import threading
import time
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pydantic import Field, ValidationError

from menagerie.store.layout import lease_key
from zoo.errors import NotInStore, StoreError, TooLarge
from zoo.frozen import Frozen
from zoo.processes import Owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from zoo.store.base import ObjectStore

__all__ = ["Patience", "hold_lease"]

_MAX_BYTES = 4096
_LEAST_SETTLING = 0.05  # seconds: a process may have to wait for a processor in between


class Patience(Frozen):
    """How often a lease is renewed and looked at, in seconds where nothing else is said."""

    renew: float = Field(default=10.0, gt=0)
    look: float = Field(default=5.0, gt=0)
    dead: float = Field(default=45.0, gt=0, description="unchanged for so long: its holder is gone")
    longest: float = Field(
        default=6 * 3600.0, gt=0, description="waited in all: a note that ever changes is forged"
    )
    settle: float = Field(
        default=4.0,
        ge=0,
        description="times as long as writing it took, between that and reading it back; no longer"
        " than until it is to be renewed",
    )


class _Note(Frozen):
    owner: str
    host: str  # as people call it
    process: Owner
    beat: int


@contextmanager
def hold_lease(
    objects: ObjectStore,
    build_key: str,
    patience: Patience | None = None,
    waiting: Callable[[str], None] = lambda _: None,
) -> Iterator[bool]:
    """Holds the lease of a build while the block runs; waits until it is free.

    Args:
        objects: the store.
        build_key: of what.
        patience: how long what takes.
        waiting: told once by whom it is held, e.g. `process 12 on host`, before it is waited for.

    Yields:
        Whether another held it in between: then the release may be there by now.

    Raises:
        StoreError: the store cannot be asked.
    """
    patience = patience or Patience()
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
        with suppress(StoreError):  # whoever waits will see that it is not renewed
            if (note := _read(objects, key)) is not None and note.owner == mine.owner:
                objects.delete(key)


def _acquire(
    objects: ObjectStore,
    key: str,
    mine: _Note,
    patience: Patience,
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
            # Who saw it free at the same time, and is about as near the store, has written then.
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
    objects: ObjectStore, key: str, mine: _Note, patience: Patience, ended: threading.Event
) -> None:
    beat = 0
    while not ended.wait(patience.renew):
        beat += 1
        note = mine.model_copy(update={"beat": beat})
        with suppress(StoreError):  # it was away for a moment, or the publication will say so
            objects.put_small(key, note.model_dump_json().encode())


def _read(objects: ObjectStore, key: str) -> _Note | None:
    try:
        return _Note.model_validate_json(objects.read_small(key, _MAX_BYTES))
    except (NotInStore, TooLarge, ValidationError):
        return None
