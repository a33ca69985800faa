"""The CPU runtime for Macs with Apple's processors is built on any host, and linked."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.sweep

_RUNTIME = Path(__file__).parents[2] / "runtime"
_MACH_O_64, _ARM64, _DYNAMIC_LIBRARY = 0xFEEDFACF, 0x0100000C, 6  # Apple's mach-o/loader.h


def _run(folder: Path, *command: object) -> None:
    tools = Path(sys.executable).parent
    caches = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(folder / "zig"))
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [tools / "cmake", *map(str, command)],
        capture_output=True, text=True, check=False, env=os.environ | caches | {"PATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_cpu_runtime_links_for_a_mac(tmp_path: Path) -> None:
    """By the toolchain file alone, with nothing of Apple's."""
    _run(
        tmp_path, "-S", _RUNTIME, "-B", tmp_path, "-G", "Ninja",
        f"-DCMAKE_TOOLCHAIN_FILE={_RUNTIME / 'mac_arm64.cmake'}",
        f"-DPython_EXECUTABLE={sys.executable}",
    )  # fmt: skip
    _run(tmp_path, "--build", tmp_path, "--target", "menagerie_cpu", "menagerie_signature")
    for name in ("libmenagerie_cpu.dylib", "libmenagerie-signature.dylib"):
        magic, processor, _, kind = struct.unpack("<4I", (tmp_path / name).read_bytes()[:16])
        assert (magic, processor, kind) == (_MACH_O_64, _ARM64, _DYNAMIC_LIBRARY)
