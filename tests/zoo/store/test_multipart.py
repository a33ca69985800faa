"""How a large file is cut."""

from __future__ import annotations

from zoo.store.multipart import MAX_PARTS, plan

MIB = 2**20
PART = 5 * MIB


def test_parts_cover_the_file() -> None:
    """Parts follow each other without a gap, and are never more than a server takes."""
    for size in (1, PART, PART + 1, 3 * PART, 100 * MIB + 1, 10 * 2**40):
        parts = plan(size, PART)
        assert len(parts) <= MAX_PARTS
        assert [part.number for part in parts] == list(range(1, len(parts) + 1))
        ends = [part.offset + part.length for part in parts]
        assert [part.offset for part in parts] == [0, *ends[:-1]]
        assert ends[-1] == size
        assert all(part.length >= PART for part in parts[:-1])
