"""The reader of Mach-O files: what it says of a sound library, and of everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transforms.lowering.mach import read_library
from zoo.errors import LoweringError

if TYPE_CHECKING:
    from pathlib import Path


def test_one_changed_byte_breaks_the_signature(dylib: Path, tmp_path: Path) -> None:
    """The hash of every page is compared: macOS would refuse to run the changed page."""
    assert read_library(dylib).signed
    data = bytearray(dylib.read_bytes())
    data[len(data) // 3] ^= 1
    changed = tmp_path / "changed.dylib"
    changed.write_bytes(data)
    assert not read_library(changed).signed


def test_a_library_has_a_uuid(dylib: Path, tmp_path: Path) -> None:
    """MacOS 26 loads none without: ours has the load command, and its absence would be told."""
    assert read_library(dylib).identified
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
    assert not read_library(changed).identified


@pytest.mark.parametrize("content", [b"", b"\x7fELF" + bytes(60), b"\xcf\xfa\xed\xfe" + bytes(60)])
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    """Empty, ELF, and a Mach-O header for no processor."""
    path = tmp_path / "other.dylib"
    path.write_bytes(content)
    with pytest.raises(LoweringError, match="no Mach-O library for arm64 macOS"):
        read_library(path)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=st.integers(0, 6000))
def test_a_file_cut_short_is_refused(dylib: Path, tmp_path: Path, length: int) -> None:
    """Wherever it ends in its load commands: one error, no crash, no half answer."""
    path = tmp_path / "short.dylib"
    path.write_bytes(dylib.read_bytes()[:length])
    with pytest.raises(LoweringError):
        read_library(path)
