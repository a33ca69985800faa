"""What `zoo doctor` asks of a store: every operation once, on scratch keys that are removed."""

from __future__ import annotations

import secrets
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.base_models import Frozen
from zoo.errors import MenagerieError, StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from zoo.store.base import ObjectStore

__all__ = ["Finding", "StoreCheck", "probe"]

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
    remark: str = ""  # what to set, though all of it works

    @property
    def passed(self) -> bool:
        """Whether publishing and pulling will work."""
        return all(finding.passed for finding in self.findings)


class _Mismatch(Exception):
    """The store answered, but not with what was put."""


def probe(objects: ObjectStore) -> StoreCheck:
    """Tries each operation and reports all, but stops where nobody answers."""
    findings: list[Finding] = []
    with tempfile.TemporaryDirectory() as folder:
        session = _Session(objects, Path(folder))
        for operation, attempt in session.steps():
            start = time.perf_counter()
            answered = True
            try:
                passed, detail = True, attempt()
            except (_Mismatch, MenagerieError) as error:
                passed, detail = False, str(error)
                answered = not isinstance(error, StoreUnreachable)
            milliseconds = (time.perf_counter() - start) * 1000
            findings.append(
                Finding(
                    operation=operation, passed=passed, detail=detail, milliseconds=milliseconds
                )
            )
            if not answered:
                break
    return StoreCheck(url=objects.url, findings=tuple(findings), remark=objects.remark)


class _Session:
    """The operations, in an order in which each finds what the one before left."""

    def __init__(self, objects: ObjectStore, folder: Path) -> None:
        self._objects = objects
        self._folder = folder
        self._prefix = f"probe/{secrets.token_hex(8)}"
        self._content = secrets.token_bytes(_SMALL)

    def steps(self) -> tuple[tuple[str, Callable[[], str]], ...]:
        """Names and operations."""
        return (
            ("write a small object", self._write),
            ("read it back", self._read),
            ("list it", self._list),
            ("read a range of it", self._range),
            ("write a file" + (" in parts" if self._objects.part_bytes else ""), self._file),
            ("remove them", self._remove),
        )

    def _write(self) -> str:
        self._objects.put_small(f"{self._prefix}.small", self._content)
        return f"{_SMALL:,} bytes"

    def _read(self) -> str:
        same = self._objects.read_small(f"{self._prefix}.small", _SMALL) == self._content
        return _require(same, "the bytes are the same", "the bytes differ")

    def _list(self) -> str:
        keys = self._objects.list_keys(f"{self._prefix}.")
        seen = keys == [f"{self._prefix}.small"]
        return _require(seen, "seen at once", f"it lists {keys}: a written object must be seen")

    def _range(self) -> str:
        path = self._folder / "range"
        path.write_bytes(self._content[: _SMALL // 2])
        self._objects.get_file(f"{self._prefix}.small", path, _SMALL, lambda _: None)
        same = path.read_bytes() == self._content
        return _require(same, "a download can be resumed", "the second half differs")

    def _file(self) -> str:
        size = self._objects.part_bytes + _SMALL
        path = self._folder / "file"
        path.write_bytes((self._content * (size // _SMALL + 1))[:size])
        self._objects.put_file(path, f"{self._prefix}.file", lambda _: None)
        stored = self._objects.size_of(f"{self._prefix}.file")
        return _require(stored == size, f"{size:,} bytes", f"{stored} bytes instead of {size:,}")

    def _remove(self) -> str:
        for name in ("small", "file"):
            self._objects.delete(f"{self._prefix}.{name}")
        left = self._objects.list_keys(f"{self._prefix}.")
        return _require(not left, "gone at once", f"still listed: {left}")


def _require(holds: bool, yes: str, no: str) -> str:
    if not holds:
        raise _Mismatch(no)
    return yes
