"""The memory that a model's processes use, and the limit on it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

import psutil

_SHARE = 0.85  # of the available memory, if there is no limit
_ANONYMOUS = re.compile(r"^(?:Pss_Anon|Anonymous): +(\d+) kB", re.MULTILINE)
_LIKELY_VICTIM = "500"  # of 1000, for the kernel's choice if memory runs out


def memory_allowed(limit: int | None, root: Path = Path("/")) -> int:
    """Return the bytes that a conversion may use: `limit`, else most of the available memory.

    That is the machine's memory, or less in a container or service with a limit: beyond it the
    kernel would kill an arbitrary process. `root` is the parent of `proc` and `sys`.
    """
    machine = psutil.virtual_memory().total
    return limit or int(min([machine, *_group_limits(root)]) * _SHARE)


def expendable(process: int) -> None:
    """Let the kernel kill this process before the one that watches it if memory runs out."""
    with suppress(OSError):  # macOS has no such file
        Path(f"/proc/{process}/oom_score_adj").write_text(_LIKELY_VICTIM)


def group_memory(group: int) -> int:
    """Return the bytes of private memory of a group's processes."""
    total = 0
    for process in psutil.pids():
        with suppress(OSError, psutil.Error):  # it ended in the meantime
            if os.getpgid(process) == group:
                total += _process_memory(process)
    return total


def _process_memory(process: int) -> int:
    """Return a process's memory; on Linux without mapped files, and with its part of shared pages.

    psutil's PSS counts mapped files, which the kernel can drop at any time (proc_pid_smaps(5)).
    """
    if sys.platform != "linux":
        return int(psutil.Process(process).memory_info().rss)
    match = _ANONYMOUS.search(Path(f"/proc/{process}/smaps_rollup").read_text())
    return 0 if match is None else int(match[1]) * 1024


def _group_limits(root: Path) -> Iterator[int]:
    """Yield the byte limits of this process's control group and of its parents (cgroups(7)).

    A container may see its own group as the root folder, whatever path it is told.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # macOS has no such file
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
            with suppress(OSError, ValueError):  # no file, or `max`
                yield int((top / group / name).read_text())
