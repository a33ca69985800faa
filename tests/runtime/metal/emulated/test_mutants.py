"""Each check of the emulated device is needed: without it, a test of the checks fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from mutants import CHECK

_PRELUDE = Path(__file__).parents[4] / "runtime/metal/emulated/prelude"
_ORDER = ("checks", "threads", "matrices")  # as sources.cmake has them; no other one has checks
_CHECKS = [
    name.decode()
    for each in _ORDER
    for name in CHECK.findall((_PRELUDE / f"{each}.h").read_bytes())
]


def test_all_checks_are_taken_out() -> None:
    """The numbers are those of the whole prelude."""
    assert len(_CHECKS) == sum(len(CHECK.findall(p.read_bytes())) for p in _PRELUDE.glob("*.h"))


@pytest.mark.sweep
@pytest.mark.parametrize(
    "number", range(len(_CHECKS)), ids=[f"{n}-{name}" for n, name in enumerate(_CHECKS)]
)
def test_a_check_that_is_gone_is_missed(number: int) -> None:
    """By a test that fails; a process that crashes instead has found nothing."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "mutants", "-p", "no:xdist"]
    files = [str(Path(__file__).with_name(name)) for name in ("test_checks.py", "test_tensors.py")]
    variables = {"MUTANT": str(number), "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(
        [*command, *files],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        check=False,
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout[-2000:]
    assert "the device found nothing wrong" in done.stdout or "AssertionError" in done.stdout
