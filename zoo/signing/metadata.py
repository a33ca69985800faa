"""The store's metadata of The Update Framework, as the holder of the keys writes it.

The metadata lists ledgers, and each ledger lists its releases by digest. A file is written before
the files that refer to it, so a promotion that was killed leaves the previous state.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, MetaFile, Snapshot, TargetFile, Targets, Timestamp
from tuf.api.serialization import DeserializationError

from menagerie.durable import write_durably
from menagerie.store.layout import METADATA
from zoo.signing.keyring import Keyring, Role, expires

if TYPE_CHECKING:
    from zoo.store.base import ObjectStore

_MOST_BYTES = 8 * 2**20
S = TypeVar("S", Targets, Snapshot, Timestamp)


class StoreMetadata:
    """Writer of a store's metadata; the caller holds `Keyring.hold` meanwhile."""

    def __init__(self, objects: ObjectStore, keyring: Keyring) -> None:
        self._objects = objects
        self._keyring = keyring
        name = hashlib.sha256(objects.url.encode()).hexdigest()[:32]
        self._kept = keyring.folder / "stores" / name  # prevents rollback by the store

    def list_ledger(self, key: str, content: bytes) -> None:
        """List the ledger under this key with this content, and renew all dates."""
        targets = self._latest(Targets)
        targets.targets[key] = TargetFile.from_data(key, content, ["sha256"])
        self._write(targets)
        self.refresh(targets.version)

    def refresh(self, targets_version: int | None = None) -> None:
        """Renew the dates of snapshot and timestamp, which only needs the online key."""
        snapshot = self._latest(Snapshot)
        if targets_version is not None:
            snapshot.meta["targets.json"] = MetaFile(version=targets_version)
        for version, root in self._keyring.roots.items():
            self._objects.put_if_new(f"{METADATA}{version}.root.json", root)
        self._write(snapshot)
        timestamp = self._latest(Timestamp)
        timestamp.snapshot_meta = MetaFile(version=snapshot.version)
        self._write(timestamp)

    def _write(self, signed: Targets | Snapshot | Timestamp) -> None:
        """Sign the next version; save it locally first, so that no version is signed twice."""
        self._next(signed)
        metadata: Metadata[Any] = Metadata(signed)
        role = Role.RELEASE if isinstance(signed, Targets) else Role.ONLINE
        for signer in self._keyring.signers(role):
            metadata.sign(signer, append=True)
        content = metadata.to_bytes()
        self._kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._kept / f"{signed.type}.json"
        write_durably(path, content, partial=path.with_suffix(".partial"))
        version = "" if isinstance(signed, Timestamp) else f"{signed.version}."
        self._objects.put_small(f"{METADATA}{version}{signed.type}.json", content)

    def _next(self, signed: Targets | Snapshot | Timestamp) -> None:
        signed.version += 1
        signed.expires = expires(getattr(self._keyring.settings.expiry, signed.type))

    def _latest(self, kind: type[S]) -> S:
        """Return the last version that any holder of the keys signed, or else an empty one."""
        own = self._verified(kind, _bytes(self._kept / f"{kind.type}.json"))
        found = [s for s in (own, self._stored(kind)) if s is not None]
        return max(found, key=lambda each: each.version) if found else kind()

    def _stored(self, kind: type[S]) -> S | None:
        """Return the store's metadata; the version comes from the metadata one level above."""
        name = f"{kind.type}.json"
        if kind is Snapshot and (above := self._stored(Timestamp)) is not None:
            name = f"{above.snapshot_meta.version}.{name}"
        elif kind is Targets and (listing := self._stored(Snapshot)) is not None:
            if name not in listing.meta:
                return None
            name = f"{listing.meta[name].version}.{name}"
        elif kind is not Timestamp:
            return None
        return self._verified(kind, self._objects.read_if_there(METADATA + name, _MOST_BYTES))

    def _verified(self, kind: type[S], content: bytes | None) -> S | None:
        """Return metadata signed by the current keys, or saved locally before a rotation."""
        if content is None:
            return None
        try:
            metadata = Metadata[kind].from_bytes(content)  # type: ignore[valid-type]
            if content != _bytes(self._kept / f"{kind.type}.json"):
                self._keyring.root.verify_delegate(kind.type, metadata)
        except (RepositoryError, DeserializationError, ValueError):
            return None
        signed = metadata.signed
        return signed if isinstance(signed, kind) else None


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
