"""Which builds a store holds, found out with two listings instead of a question for each."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from menagerie.format.bundle_manifest import MAX_MANIFEST_BYTES, ReleaseState, parse_manifest
from menagerie.paths import home
from menagerie.store.layout import (
    BLOBS,
    CANDIDATES,
    blob_key,
    parse_candidate_key,
    parse_release_key,
    releases_prefix,
)
from zoo.errors import MenagerieError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from menagerie.format.bundle_manifest import BundleManifest
    from menagerie.store.releases import Build
    from zoo.store.base import ObjectStore

_PLACES = ((releases_prefix(), parse_release_key), (CANDIDATES, parse_candidate_key))
_READERS = 16  # a document may come from across an ocean


@dataclass(frozen=True)
class StoredBuild:
    """What a store has of a build: how it was proven, and the bytes of all its files."""

    state: ReleaseState
    bytes: int

    @classmethod
    def of(cls, manifest: BundleManifest) -> StoredBuild:
        """A build whose files are all there."""
        return cls(manifest.state, manifest.size)


def inventory(objects: ObjectStore) -> dict[Build, StoredBuild]:
    """Every build, candidates too, whose document is sound and whose files are there, by size.

    The documents are kept under Menagerie's home: a second look reads none of them again, as long
    as the files that they name are there. Where they cannot be kept, it reads them again.
    """
    documents = [
        (build, key)
        for prefix, parse in _PLACES
        for key in objects.list_keys(prefix)
        if (build := parse(key)) is not None
    ]
    sizes = {file.key: file.bytes for file in objects.list_files(BLOBS)} if documents else {}
    reader = _Reader(objects, sizes)
    with ThreadPoolExecutor(_READERS) as pool:
        held = list(pool.map(lambda document: reader.held(*document), documents))
    found: dict[Build, StoredBuild] = {}
    for (build, _), each in zip(documents, held, strict=True):
        earlier = found.get(build)
        if each is not None and (earlier is None or earlier.state is not ReleaseState.VALIDATED):
            found[build] = each
    return found


class _Reader:
    def __init__(self, objects: ObjectStore, sizes: Mapping[str, int]) -> None:
        self._objects = objects
        self._sizes = sizes
        store = hashlib.sha256(objects.url.encode()).hexdigest()[:16]
        self._kept = home() / "documents" / store
        with suppress(OSError):
            self._kept.mkdir(parents=True, exist_ok=True)

    def held(self, build: Build, key: str) -> StoredBuild | None:
        """What is held of a whole release; None for any other."""
        kept = self._kept / key.replace("/", "+")
        if (manifest := _parsed(kept, build)) is not None and self._whole(manifest):
            return StoredBuild.of(manifest)
        try:
            document = self._objects.read_small(key, MAX_MANIFEST_BYTES)
            manifest = parse_manifest(document, key)
        except MenagerieError:
            return None
        if _identity(manifest) != build or not self._whole(manifest):
            return None
        with suppress(OSError):  # what is half written does not count
            kept.write_bytes(document)
        return StoredBuild.of(manifest)

    def _whole(self, manifest: BundleManifest) -> bool:
        entries = manifest.listed.values()
        return all(self._sizes.get(blob_key(e.sha256)) == e.bytes for e in entries)


def _parsed(kept: Path, build: Build) -> BundleManifest | None:
    """A kept document; one that cannot be read, or was half written, does not count."""
    try:
        manifest = parse_manifest(kept.read_bytes(), str(kept))
    except (OSError, MenagerieError):
        return None
    return manifest if _identity(manifest) == build else None


def _identity(manifest: BundleManifest) -> Build:
    return manifest.model, manifest.target, manifest.build_key
