"""Kernels come for AVX-512 and for less: tests of them run once more where only AVX2 may be used."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_NAME = "ONEDNN_MAX_CPU_ISA"  # the kernel library's; ours follow it
IS_LESSER = _NAME in os.environ

not_on_lesser = pytest.mark.skipif(IS_LESSER, reason="this is the process without AVX-512")


def assert_passes_without_avx512(file: str) -> None:
    """All tests of a file pass in a process that may use AVX2 alone."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", file]
    environment = {**os.environ, _NAME: "AVX2"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
