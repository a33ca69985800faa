"""Which release of a model is a platform's latest: by its signed ledger, else by a summary.

A ledger is signed, no older than one seen before, and fresh by TUF.

`latest/<model>/<platform>.json` names the platform's best of the releases that it has *considered*,
and lists those, the ones for other platforms too. A reader asks the store which releases there are
and looks at the ones the summary has not considered: so a process that was killed before it wrote
the summary, or two that wrote it in the wrong order, make the next reader's work longer by a
document, and never its answer wrong. No lock and no conditional write is needed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from importlib.util import find_spec
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Literal

from menagerie.durable import write_durably
from menagerie.errors import NotInStore, TooLarge, Untrusted
from menagerie.format.bundle_manifest import BundleManifest, Moment, ReleaseState, Sha256, moment
from menagerie.paths import home
from menagerie.store.layout import (
    MAX_SUMMARY_BYTES,
    latest_key,
    ledger_key,
    parse_release_key,
    releases_prefix,
)
from menagerie.trust.ledger import MAX_LEDGER_BYTES, Ledger, read_ledger
from menagerie.trust.roots import trusted_roots
from menagerie.typed_json import Malformed, from_json

if TYPE_CHECKING:
    from pathlib import Path

    from menagerie.store.base import ObjectReader

FORMAT_NAME: Final = "menagerie-latest"
_SLACK = timedelta(days=1)  # clocks differ
Read = Callable[[str, str, str], BundleManifest | None]  # model, target, build key


@dataclass(frozen=True, kw_only=True)
class Latest:
    """The summary: the best release, and all that were compared."""

    format: Literal["menagerie-latest"] = FORMAT_NAME
    version: Literal[1] = 1
    build_key: Sha256
    state: ReleaseState
    created: Moment
    considered: tuple[str, ...] = ()  # names of the documents, sorted


def find_latest(
    objects: ObjectReader, model: str, target: str, platform: str, read: Read
) -> Latest | None:
    """The summary as it ought to be now; None when there is no readable release for the platform.

    Where nothing can be listed, the stored summary is taken at its word. A validated release goes
    before an emulated one, then the newer before the older.

    Args:
        objects: the store.
        model: name in the manifest.
        target: name of the target.
        platform: of the release wanted.
        read: gives the manifest of a release, or None when it cannot be read.
    """
    listed = objects.list_keys(releases_prefix(model, target))
    if listed is None:
        return read_summary(objects, model, platform)
    keys = {PurePosixPath(key).stem for key in listed if parse_release_key(key) is not None}
    summary = read_summary(objects, model, platform)
    if summary is not None and keys.issuperset(summary.considered):
        best, seen = [summary], set(summary.considered)
    else:  # no summary yet, or a release that it speaks of was removed
        best, seen = [], set()
    for key in keys - seen:
        if (manifest := read(model, target, key.removesuffix(".confirmed"))) is not None:
            seen.add(key)
            if manifest.platform == platform:
                state, created = manifest.state, manifest.created
                entry = Latest(build_key=manifest.build_key, state=state, created=created)
                best.append(entry)
    if not best:
        return None
    return replace(max(best, key=_rank), considered=tuple(sorted(seen)))


def read_summary(objects: ObjectReader, model: str, platform: str) -> Latest | None:
    """The stored summary; None when there is none that can be read, for it can be made again."""
    content = objects.read_if_there(latest_key(model, platform), MAX_SUMMARY_BYTES)
    with suppress(Malformed):
        return None if content is None else from_json(Latest, content)
    return None


def _rank(entry: Latest) -> tuple[bool, bool, datetime, str]:
    """A date to come is no date: who wrote it could otherwise be the latest for ever."""
    validated, created = entry.state is ReleaseState.VALIDATED, moment(entry.created)
    believable = created <= datetime.now(timezone.utc) + _SLACK
    return validated, believable, created, entry.build_key


def trusted_ledger(objects: ObjectReader, model: str, platform: str) -> Ledger | None:
    """The ledger of a model for a platform; None where there is none.

    With the extra `tuf` installed, the store's metadata is checked too: then a mirror can neither
    show an old state for longer than the metadata allows nor mix states. Without it, an older
    ledger than this machine has seen before is refused, and no more.

    Raises:
        Untrusted: no trusted key has signed it, or it is an old or another one.
        ArtifactError: it is damaged.
        StoreError: the store could not be asked.
    """
    key = ledger_key(model, platform)
    place = f"{objects.url}/{key}"
    roots = trusted_roots()
    try:
        content = objects.read_small(key, MAX_LEDGER_BYTES)
        if roots and find_spec("tuf") is not None:
            from menagerie.store.tuf_client import current_ledger

            content, roots = current_ledger(objects, key, roots, place)
    except NotInStore:
        _require_unseen(objects, key, place)
        return None
    except TooLarge as error:
        raise Untrusted(place, error.fact, "Tell the store's owner") from None
    ledger = read_ledger(content, place, roots)
    if (ledger.model, ledger.platform) != (model, platform):
        raise Untrusted(place, "is the ledger of another model", "Tell the store's owner")
    _require_later(objects, key, ledger, place)
    return ledger


def _require_later(objects: ObjectReader, key: str, ledger: Ledger, place: str) -> None:
    """A ledger only grows, and what it said stays; remembers what it says now.

    Raises:
        Untrusted: another one was seen here before.
    """
    path = _memory(objects, key)
    count, digest = _seen(path)
    if ledger.serial < count or _digest(ledger, count) != digest:
        fact = f"its {ledger.serial} entries are not those {count} that were seen here before"
        advice = f"The store shows an old state: tell its owner. If it was made anew, remove {path}"
        raise Untrusted(place, fact, advice)
    if ledger.serial > count:
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            content = {"serial": ledger.serial, "digest": _digest(ledger, ledger.serial)}
            write_durably(path, json.dumps(content).encode(), partial=path.with_suffix(".partial"))


def _require_unseen(objects: ObjectReader, key: str, place: str) -> None:
    """Raises Untrusted where there was a ledger before: who withholds it hides retractions."""
    path = _memory(objects, key)
    if _seen(path)[0] > 0:
        advice = f"Tell the store's owner. If it was made anew, remove {path}"
        raise Untrusted(place, "was seen here before and is gone", advice)


def _memory(objects: ObjectReader, key: str) -> Path:
    """The file that remembers what a ledger said."""
    name = hashlib.sha256(f"{objects.place}\n{key}".encode()).hexdigest()
    return home() / "seen" / f"{name}.json"


def _digest(ledger: Ledger, count: int) -> str:
    """Of the first entries."""
    return hashlib.sha256(repr(ledger.entries[:count]).encode()).hexdigest() if count else ""


def _seen(path: Path) -> tuple[int, str]:
    try:
        kept: Any = json.loads(path.read_bytes())
        return int(kept["serial"]), str(kept["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, ""
