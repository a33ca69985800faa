"""Checks of each operation of a store."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.base_models import Frozen
from zoo.errors import MenagerieError, StoreUnreachable
from zoo.store.base import ObjectStore

if TYPE_CHECKING:
    _Attempt = tuple[str, Callable[[], bool], str]  # its name, the attempt, the detail if it fails

_SMALL = 4096  # bytes


class Finding(Frozen):
    """The result of one operation."""

    operation: str
    detail: str  # what went wrong; empty if it passed
    milliseconds: float


def probe(objects: ObjectStore) -> tuple[Finding, ...]:
    """Try each operation once, on scratch keys that are removed, for `zoo doctor`.

    All operations are tried, unless the store cannot be reached.
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
            findings.append(Finding(operation=operation, detail=fault, milliseconds=took))
            if not reached:
                break
    return tuple(findings)


def _attempts(objects: ObjectStore, folder: Path) -> tuple[_Attempt, ...]:
    """Return the operations in order: each one uses the result of the one before."""
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
