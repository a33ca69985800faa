"""Ending a process with the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

__all__ = ["end_with"]

_PR_SET_PDEATHSIG = 1  # of prctl(2)


def end_with(parent: int, sent: signal.Signals = signal.SIGKILL) -> None:
    """On Linux, have the kernel send this process a signal when its parent ends, however it ends.

    Args:
        parent: its process id, known from before this process began: where it is gone already, the
            kernel would say nothing more, and the signal is sent at once.
        sent: the signal.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, sent, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), sent)
