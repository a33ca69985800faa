"""When a process started: what tells it from all others that have its id, before and after."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

__all__ = ["birth"]

_LINUX = platform.system() == "Linux"
_PROC = Path("/proc")


def birth(pid: int) -> str | None:
    """When a process started, as a text that no other process of this id ever has.

    On Linux ticks since boot together with the boot's id, which no clock that is set can change; on
    macOS the date, to a second. None if there is no such process, or only its exit code is left.
    """
    if _LINUX:
        try:
            # See proc(5): the name in brackets may hold anything, brackets and blanks included.
            fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
            boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            return None
        state, ticks = fields[0], fields[19]
        return None if state in "ZX" else f"{boot} {ticks}"
    shown = subprocess.run(
        ["/bin/ps", "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        env={"LC_ALL": "C"},
    ).stdout.split(maxsplit=1)
    return None if not shown or shown[0].startswith("Z") else shown[1].strip()
