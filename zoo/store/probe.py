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
    from collections.abc import Callable, Iterator

    from zoo.store.base import ObjectStore

    _Attempt = tuple[str, Callable[[], tuple[bool, str]]]  # its name; whether it passed, and why

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


def probe(objects: ObjectStore) -> StoreCheck:
    """Tries each operation and reports all, but stops where the store cannot be reached."""
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
    return StoreCheck(url=objects.url, findings=tuple(findings), remark=objects.remark)


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
