"""How much memory a stage in a process of its own may take, and how much it takes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHARE = 0.85  # of the memory there is, where nothing is said
_PAGE = os.sysconf("SC_PAGE_SIZE")
_KILOBYTE = 1024  # of /proc (proc_pid_smaps(5))
_ANONYMOUS = re.compile(r"^(?:Pss_Anon|Anonymous): +(\d+) kB", re.MULTILINE)
_LIKELY_VICTIM = "500"  # of 1000, for the kernel's choice when memory runs out


def memory_allowed(asked: int | None, root: Path = Path("/")) -> int:
    """Bytes that a conversion may take: what was asked for, else most of what there is.

    There is what the machine has, or less, where a container or a service is given less: beyond
    that the kernel would end whichever process it likes.

    Args:
        asked: bytes.
        root: the folder in which `proc` and `sys` lie.
    """
    machine = os.sysconf("SC_PHYS_PAGES") * _PAGE
    return asked or int(min([machine, *_group_limits(root)]) * _SHARE)


def expendable(process: int) -> None:
    """Let the kernel end this process before the one that watches it, when memory runs out."""
    with suppress(OSError):  # macOS has no such thing
        Path(f"/proc/{process}/oom_score_adj").write_text(_LIKELY_VICTIM)


def group_memory(group: int) -> int:
    """Bytes of memory that the processes of a group have to themselves.

    On Linux, mapped files are left out, and of pages that forks share each has its part; elsewhere
    all count.
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
                    found = _ANONYMOUS.search((entry / "smaps_rollup").read_text())
                    total += 0 if found is None else int(found[1]) * _KILOBYTE
    return total


def group_seconds(group: int) -> float:
    """Processor seconds of the living processes of a group, and of those that they waited for.

    On macOS 0: it tells them in another form.
    """
    total = 0
    if sys.platform == "linux":
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError, IndexError, ValueError):
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    if int(fields[2]) == group:
                        total += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return total / os.sysconf("SC_CLK_TCK")


def _group_limits(root: Path) -> Iterator[int]:
    """Bytes that this process's control groups allow, and those above them; see cgroups(7).

    A container may see its own group as the topmost folder, under whatever path it is told.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # macOS has no such thing
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2
            top, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        below = PurePosixPath(path.lstrip("/"))
        for group in (below, *below.parents):
            with suppress(OSError, ValueError):  # none there, or `max`
                yield int((top / group / name).read_text())


def _by_ps(group: int) -> int:
    shown = subprocess.run(
        ["ps", "-axo", "pgid=,rss="],  # noqa: S607 - of the system
        capture_output=True,
        text=True,
        check=False,
    )
    pairs = (line.split() for line in shown.stdout.splitlines())
    return sum(int(kib) * 1024 for pgid, kib in pairs if int(pgid) == group)
