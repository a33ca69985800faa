"""What macOS asks of a library is seen to be there, and would be seen to be missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.transforms.lowering.linked_library import LinkedLibrary

if TYPE_CHECKING:
    from pathlib import Path


def test_one_changed_byte_breaks_the_signature(dylib: Path, tmp_path: Path) -> None:
    """The hash of every page is compared: macOS would refuse to run the changed page."""
    assert LinkedLibrary(dylib).signed
    data = bytearray(dylib.read_bytes())
    data[len(data) // 3] ^= 1
    changed = tmp_path / "changed.dylib"
    changed.write_bytes(data)
    assert not LinkedLibrary(changed).signed


def test_a_library_has_a_uuid(dylib: Path, tmp_path: Path) -> None:
    """MacOS 26 loads none without: ours has the load command, and its absence would be found."""
    assert LinkedLibrary(dylib).identified
    data = dylib.read_bytes()
    count = int.from_bytes(data[16:20], "little")
    at = 32  # behind the header of a 64-bit file (loader.h: mach_header_64)
    for _ in range(count):
        kind, size = (int.from_bytes(data[at + i : at + i + 4], "little") for i in (0, 4))
        if kind == 0x1B:  # LC_UUID
            data = data[:at] + (0x99).to_bytes(4, "little") + data[at + 4 :]
        at += size
    changed = tmp_path / "changed.dylib"
    changed.write_bytes(data)
    assert not LinkedLibrary(changed).identified
