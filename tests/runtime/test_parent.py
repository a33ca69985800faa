"""A process ends with the one that started it, also where that one was gone before it asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a promise of Linux's kernel")


def _asks(parent: str, sent: signal.Signals) -> int:
    """How a process ends that asks to end with `parent`, an expression."""
    program = f"import os; from menagerie import process; process.end_with({parent}, {int(sent)})"
    return subprocess.run([sys.executable, "-c", program], check=False).returncode


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_whose_parent_is_gone_ends_at_once(sent: signal.Signals) -> None:
    """As where it asks too late, with another parent by then."""
    assert _asks("os.getpid()", sent) == -sent


def test_a_process_whose_parent_lives_goes_on() -> None:
    """It ends by itself."""
    assert _asks(str(os.getpid()), signal.SIGKILL) == 0


def test_a_process_ends_when_its_parent_is_killed() -> None:
    """Its output ends only when the last process that holds the pipe is gone."""
    between = (
        "import os, signal, time\n"
        "from menagerie import process\n"
        "own = os.getpid()\n"
        "read, write = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    process.end_with(own)\n"
        "    os.write(write, b'!')\n"
        "    signal.pause()\n"
        "os.read(read, 1)\n"
        "os.kill(own, signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", between], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL
