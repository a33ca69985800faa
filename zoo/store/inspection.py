"""Looking at a store: which builds it holds, and whether each of its operations works."""

from __future__ import annotations

import secrets
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from menagerie.format.bundle_manifest import MAX_MANIFEST_BYTES, ReleaseState, parse_manifest
from menagerie.store.layout import (
    BLOBS,
    CANDIDATES,
    blob_key,
    parse_candidate_key,
    parse_release_key,
    releases_prefix,
)
from zoo.base_models import Frozen
from zoo.errors import MenagerieError, StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from menagerie.format.bundle_manifest import BundleManifest
    from menagerie.store.releases import Build
    from zoo.store.base import ObjectStore

    _Attempt = tuple[str, Callable[[], tuple[bool, str]]]  # its name; whether it passed, and why

_PLACES = ((releases_prefix(), parse_release_key), (CANDIDATES, parse_candidate_key))
_READERS = 16  # a document may come from across an ocean


def inventory(objects: ObjectStore) -> dict[Build, BundleManifest]:
    """Every build, candidates too, whose document is sound and whose files are there, by size.

    Two listings say it, instead of a question for each.
    """
    documents = [
        (build, key)
        for prefix, parse in _PLACES
        for key in objects.list_keys(prefix)
        if (build := parse(key)) is not None
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


_SMALL = 4096


class Finding(Frozen):
    """One operation that was tried."""

    operation: str
    passed: bool
    detail: str  # what went wrong, or what was seen
    milliseconds: float


class StoreCheck(Frozen):
    """All that was found out about a store."""

    url: str
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether publishing and pulling will work."""
        return all(finding.passed for finding in self.findings)


def probe(objects: ObjectStore) -> StoreCheck:
    """What `zoo doctor` asks: each operation once, on scratch keys that are removed.

    It reports all, but stops where the store cannot be reached.
    """
    findings: list[Finding] = []
    with tempfile.TemporaryDirectory() as folder:
        for operation, attempt in _attempts(objects, Path(folder)):
            start, reached = time.perf_counter(), True
            try:
                passed, detail = attempt()
            except MenagerieError as error:
                passed, detail = False, str(error)
                reached = not isinstance(error, StoreUnreachable)
            took = (time.perf_counter() - start) * 1000
            findings.append(
                Finding(operation=operation, passed=passed, detail=detail, milliseconds=took)
            )
            if not reached:
                break
    return StoreCheck(url=objects.url, findings=tuple(findings))


def _attempts(objects: ObjectStore, folder: Path) -> Iterator[_Attempt]:
    """The operations, in an order in which each finds what the one before left."""
    prefix, content = f"probe/{secrets.token_hex(8)}.", secrets.token_bytes(_SMALL)
    small, large, size = f"{prefix}small", f"{prefix}file", objects.part_bytes + _SMALL

    def write() -> tuple[bool, str]:
        objects.put_small(small, content)
        return True, f"{_SMALL:,} bytes"

    def read() -> tuple[bool, str]:
        same = objects.read_small(small, _SMALL) == content
        return same, "the bytes are the same" if same else "the bytes differ"

    def listing() -> tuple[bool, str]:
        keys = objects.list_keys(prefix)
        seen = keys == [small]
        return seen, "seen at once" if seen else f"it lists {keys}: a written object must be seen"

    def part() -> tuple[bool, str]:
        path = folder / "range"
        path.write_bytes(content[: _SMALL // 2])
        objects.get_file(small, path, _SMALL, lambda _: None)
        same = path.read_bytes() == content
        return same, "a download can be resumed" if same else "the second half differs"

    def file() -> tuple[bool, str]:
        path = folder / "file"
        path.write_bytes((content * (size // _SMALL + 1))[:size])
        objects.put_file(path, large, lambda _: None)
        stored = objects.size_of(large)
        return stored == size, f"{size:,} bytes" + f", not {stored}" * (stored != size)

    def remove() -> tuple[bool, str]:
        for key in (small, large):
            objects.delete(key)
        left = objects.list_keys(prefix)
        return not left, f"still listed: {left}" if left else "gone at once"

    yield "write a small object", write
    yield "read it back", read
    yield "list it", listing
    yield "read a range of it", part
    yield "write a file" + (" in parts" if objects.part_bytes else ""), file
    yield "remove them", remove
