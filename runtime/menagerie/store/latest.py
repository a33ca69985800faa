"""A model's signed ledger, which names its latest release; one older than seen is rejected.

With the extra `tuf` the ledger is also known to be fresh.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from menagerie.durable import write_durably
from menagerie.errors import NotInStore, TooLarge, Untrusted
from menagerie.paths import home
from menagerie.store.base import ObjectReader
from menagerie.store.layout import ledger_key
from menagerie.trust.ledger import MAX_LEDGER_BYTES, Ledger, LedgerEntry, read_ledger
from menagerie.trust.roots import trusted_roots


def trusted_ledger(objects: ObjectReader, model: str, platform: str) -> Ledger | None:
    """Return a model's ledger for a platform, if there is one; raise Untrusted if it is unsigned.

    With the extra `tuf` installed, the store's metadata is checked too: a mirror can then neither
    show an old state for longer than the metadata allows nor mix states. Without it, the only
    check is that the ledger is not older than one that this machine has seen.
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
        _require_later(objects, key, None, place)
        return None
    except TooLarge as error:
        raise Untrusted(place, error.fact, "Tell the store's owner") from None
    ledger = read_ledger(content, place, roots)
    if (ledger.model, ledger.platform) != (model, platform):
        raise Untrusted(place, "is the ledger of another model", "Tell the store's owner")
    _require_later(objects, key, ledger, place)
    return ledger


def _require_later(objects: ObjectReader, key: str, ledger: Ledger | None, place: str) -> None:
    """Remember a ledger; raise Untrusted if it contradicts an earlier one or has disappeared.

    A ledger only grows, and its entries never change. Withholding one would hide retractions.
    """
    name = hashlib.sha256(f"{objects.place}\n{key}".encode()).hexdigest()
    path = home() / "seen" / f"{name}.json"
    entries = () if ledger is None else ledger.entries
    count, digest = _seen(path)
    if len(entries) < count or _digest(entries[:count]) != digest:
        fact = f"its {len(entries)} entries are not those {count} that were seen here before"
        fact = fact if entries else "was seen here before and is gone"
        advice = f"The store shows an old state: tell its owner. If it was remade, remove {path}"
        raise Untrusted(place, fact, advice)
    if len(entries) > count:
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            content = {"serial": len(entries), "digest": _digest(entries)}
            write_durably(path, json.dumps(content).encode(), partial=path.with_suffix(".partial"))


def _digest(entries: tuple[LedgerEntry, ...]) -> str:
    return hashlib.sha256(repr(entries).encode()).hexdigest() if entries else ""


def _seen(path: Path) -> tuple[int, str]:
    try:
        kept: Any = json.loads(path.read_bytes())
        return int(kept["serial"]), str(kept["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, ""
