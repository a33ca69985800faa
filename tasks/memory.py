"""Memory that the processes of a model take, and how much of it they may."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

import psutil

_SHARE = 0.85  # of the memory there is, where no limit is given
_ANONYMOUS = re.compile(r"^(?:Pss_Anon|Anonymous): +(\d+) kB", re.MULTILINE)
_LIKELY_VICTIM = "500"  # of 1000, for the kernel's choice when memory runs out


def memory_allowed(limit: int | None, root: Path = Path("/")) -> int:
    """Return the bytes that a conversion may take: `limit`, else most of what there is.

    That is what the machine has, or less in a container or service with a limit: beyond it the
    kernel would end whichever process it likes. `root` is the folder of `proc` and `sys`.
    """
    machine = psutil.virtual_memory().total
    return limit or int(min([machine, *_group_limits(root)]) * _SHARE)


def expendable(process: int) -> None:
    """Let the kernel end this process before the one that watches it, when memory runs out."""
    with suppress(OSError):  # macOS has no such thing
        Path(f"/proc/{process}/oom_score_adj").write_text(_LIKELY_VICTIM)


def group_memory(group: int) -> int:
    """Sum up the bytes of memory that the processes of a group have to themselves."""
    total = 0
    for process in psutil.pids():
        with suppress(OSError, psutil.Error):  # it ended in between
            if os.getpgid(process) == group:
                total += _process_memory(process)
    return total


def _process_memory(process: int) -> int:
    """Count memory; on Linux without mapped files, and with a fork's part of shared pages.

    psutil's PSS counts mapped files, which the kernel can drop at any time (proc_pid_smaps(5)).
    """
    if sys.platform != "linux":
        return int(psutil.Process(process).memory_info().rss)
    match = _ANONYMOUS.search(Path(f"/proc/{process}/smaps_rollup").read_text())
    return 0 if match is None else int(match[1]) * 1024


def _group_limits(root: Path) -> Iterator[int]:
    """Yield the bytes that this process's control groups allow, and those above (cgroups(7)).

    A container may see its own group as the topmost folder, under whatever path it is given.
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
