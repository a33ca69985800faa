"""Looking at a store: which builds it holds, and whether each of its operations works."""

from __future__ import annotations

import secrets
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from menagerie.format.bundle_manifest import MAX_MANIFEST_BYTES, ReleaseState, parse_manifest
from menagerie.store.layout import BLOBS, Build, blob_key, candidate_key, release_key
from zoo.base_models import Frozen
from zoo.errors import MenagerieError, StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from menagerie.format.bundle_manifest import BundleManifest
    from zoo.store.base import ObjectStore

    _Attempt = tuple[str, Callable[[], bool], str]  # its name; whether it passed; what if not

_READERS = 16  # a document may come from across an ocean


def inventory(objects: ObjectStore) -> dict[Build, BundleManifest]:
    """Every build, candidates too, whose document is sound and whose files are there, by size.

    Two listings say it, instead of a question for each.
    """
    documents = [
        (build, key)
        for kind in (release_key, candidate_key)
        for key in objects.list_keys(kind.folder)
        if (build := kind.build(key)) is not None
    ]
    sizes = {file.key: file.bytes for file in objects.list_files(BLOBS)} if documents else {}

    def held(build: Build, key: str) -> BundleManifest | None:
        """The manifest of a whole release; None for any other."""
        try:
            manifest = parse_manifest(objects.read_small(key, MAX_MANIFEST_BYTES), key)
        except MenagerieError:
            return None
        named = (manifest.model, manifest.target, manifest.build_key) == build
        entries = manifest.listed.values()
        whole = all(sizes.get(blob_key(e.sha256)) == e.bytes for e in entries)
        return manifest if named and whole else None

    with ThreadPoolExecutor(_READERS) as pool:
        answers = list(pool.map(lambda document: held(*document), documents))
    found: dict[Build, BundleManifest] = {}
    for (build, _), each in zip(documents, answers, strict=True):
        earlier = found.get(build)
        if each is not None and (earlier is None or earlier.state is not ReleaseState.VALIDATED):
            found[build] = each
    return found


_SMALL = 4096  # bytes


class Finding(Frozen):
    """One operation that was tried."""

    operation: str
    passed: bool
    detail: str  # what went wrong
    milliseconds: float


def probe(objects: ObjectStore) -> tuple[Finding, ...]:
    """What `zoo doctor` asks: each operation once, on scratch keys that are removed.

    It reports all, but stops where the store cannot be reached.
    """
    findings: list[Finding] = []
    with tempfile.TemporaryDirectory() as folder:
        for operation, attempt, otherwise in _attempts(objects, Path(folder)):
            start, reached = time.perf_counter(), True
            try:
                fault = "" if attempt() else otherwise
            except MenagerieError as error:
                fault, reached = str(error), not isinstance(error, StoreUnreachable)
            took = (time.perf_counter() - start) * 1000
            findings.append(
                Finding(operation=operation, passed=not fault, detail=fault, milliseconds=took)
            )
            if not reached:
                break
    return tuple(findings)


def _attempts(objects: ObjectStore, folder: Path) -> tuple[_Attempt, ...]:
    """The operations, in an order in which each finds what the one before left."""
    prefix, content = f"probe/{secrets.token_hex(8)}.", secrets.token_bytes(_SMALL)
    small, large, size = f"{prefix}small", f"{prefix}file", objects.part_bytes + _SMALL

    def write() -> bool:
        objects.put_small(small, content)
        return True

    def resume() -> bool:
        path = folder / "range"
        path.write_bytes(content[: _SMALL // 2])
        objects.get_file(small, path, _SMALL, lambda _: None)
        return path.read_bytes() == content

    def write_file() -> bool:
        path = folder / "file"
        path.write_bytes((content * (size // _SMALL + 1))[:size])
        objects.put_file(path, large, lambda _: None)
        return objects.size_of(large) == size

    def remove() -> bool:
        for key in (small, large):
            objects.delete(key)
        return not objects.list_keys(prefix)

    return (
        ("write a small object", write, ""),
        ("read it back", lambda: objects.read_small(small, _SMALL) == content, "the bytes differ"),
        ("list it", lambda: objects.list_keys(prefix) == [small], "it is not listed at once"),
        ("read a range of it", resume, "the second half differs"),
        ("write a file" + " in parts" * bool(objects.part_bytes), write_file, "bytes are missing"),
        ("remove them", remove, "they are still listed"),
    )
