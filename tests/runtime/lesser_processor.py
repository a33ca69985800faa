"""Kernels come for AVX-512 and for less: tests of them run once more where only AVX2 may be used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = "ONEDNN_MAX_CPU_ISA"  # the kernel library's; ours follow it
IS_LESSER = _NAME in os.environ

not_on_lesser = pytest.mark.skipif(IS_LESSER, reason="this is the process without AVX-512")


_LENT = "LENT_BUNDLES"  # folders by name, a line each
LENT: Mapping[str, Path] = {
    name: Path(folder)
    for name, _, folder in (line.partition("=") for line in os.environ.get(_LENT, "").splitlines())
}


def assert_passes_without_avx512(file: str, bundles: Mapping[str, Path]) -> None:
    """All tests of a file pass in a process that may use AVX2 alone.

    A library chooses its kernels as it runs: the bundles, by name, are lent to the process.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", file]
    lent = "\n".join(f"{name}={folder}" for name, folder in bundles.items())
    environment = {**os.environ, _NAME: "AVX2", _LENT: lent}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
