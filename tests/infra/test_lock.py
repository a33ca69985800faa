"""The whole lock installs on a Mac with an Apple processor, from wheels alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.sweep  # asks a registry

_LOCK = Path(__file__).parents[2] / "requirements.lock"
_OLDEST = "14.0"  # macOS, as wheels name it: macosx_14_0_arm64


def resolve(lock: Path, into: Path) -> subprocess.CompletedProcess[str]:
    """What uv would install there, with the lock's markers read for macOS; nothing is built."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert uv is not None
    wheels = ("--no-deps", "--require-hashes", "--only-binary", ":all:")
    system = ("--python-platform", "aarch64-apple-darwin", "--python-version", "3.11")
    command = (uv, "pip", "install", "--dry-run", *wheels, *system, "--target", into, "-r", lock)
    return subprocess.run(
        command, capture_output=True, text=True, check=False,
        env=os.environ | {"MACOSX_DEPLOYMENT_TARGET": _OLDEST},
    )  # fmt: skip


def test_the_lock_installs_on_a_mac(tmp_path: Path) -> None:
    """Every package has a wheel for it, or is left out there by its marker."""
    done = resolve(_LOCK, tmp_path / "there")
    assert done.returncode == 0, done.stderr
    assert "+ numpy==" in done.stderr


def test_a_package_for_linux_alone_is_noticed(tmp_path: Path) -> None:
    """`pyeclib` has wheels for Linux alone: without its marker the lock does not install."""
    lock = tmp_path / "requirements.lock"
    marked = _LOCK.read_text()
    lock.write_text(marked.replace("pyeclib==1.8.0 ; sys_platform == 'linux'", "pyeclib==1.8.0"))
    assert lock.read_text() != marked
    done = resolve(lock, tmp_path / "there")
    assert done.returncode != 0
    assert "pyeclib" in done.stderr
