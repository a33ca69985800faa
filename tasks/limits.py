"""How much time and memory a stage in a process of its own may take."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["expendable", "group_memory", "memory_allowed"]

_SHARE = 0.85  # of the machine's memory, where nothing is said
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LIKELY_VICTIM = "500"  # of 1000, for the kernel's choice when memory runs out


def memory_allowed(asked: int | None) -> int:
    """Bytes that a conversion may take: what was asked for, else most of the machine's."""
    return asked or int(os.sysconf("SC_PHYS_PAGES") * _PAGE * _SHARE)


def expendable(process: int) -> None:
    """Let the kernel end this process before the one that watches it, when memory runs out."""
    with suppress(OSError):  # macOS has no such thing
        Path(f"/proc/{process}/oom_score_adj").write_text(_LIKELY_VICTIM)


def group_memory(group: int) -> int:
    """Bytes of memory that the processes of a group have to themselves.

    On Linux, mapped files and shared pages are left out; elsewhere they count.
    """
    if sys.platform != "linux":
        return _by_ps(group)
    total = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):  # it ended in between
                # The name in brackets may hold anything; after it come state, parent and group.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == group:
                    pages = (entry / "statm").read_text().split()
                    total += (int(pages[1]) - int(pages[2])) * _PAGE
    return total


def _by_ps(group: int) -> int:
    shown = subprocess.run(
        ["ps", "-axo", "pgid=,rss="],  # noqa: S607 - of the system
        capture_output=True,
        text=True,
        check=False,
    )
    pairs = (line.split() for line in shown.stdout.splitlines())
    return sum(int(kib) * 1024 for pgid, kib in pairs if int(pgid) == group)
