"""This process and its machine: memory, libraries, cores and their name."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import sys
from pathlib import Path

from menagerie.errors import MenagerieError

__all__ = ["cores", "foreign_libraries", "images_of", "machine", "peak_memory_bytes"]


def peak_memory_bytes() -> int:
    """The most memory that was resident in this process so far.

    Linux's ru_maxrss survives exec, so a large parent would be counted; VmHWM starts anew.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def foreign_libraries() -> tuple[str, ...]:
    """Names of PyTorch's libraries that are mapped into this process.

    Raises:
        MenagerieError: this system does not tell.
    """
    maps = Path("/proc/self/maps")
    if maps.exists():
        names = {line.rpartition("/")[2] for line in maps.read_text().splitlines() if "/" in line}
    else:
        names = {path.rpartition("/")[2] for path in images_of(ctypes.CDLL(None))}
    return tuple(sorted(n for n in names if n.startswith(("libtorch", "libc10"))))


def images_of(loader: ctypes.CDLL) -> list[str]:
    """The paths of what macOS's loader has mapped (dyld(3): `_dyld_get_image_name`).

    Raises:
        MenagerieError: the loader is another one.
    """
    try:
        count, name = (
            getattr(loader, f"_dyld_{what}") for what in ("image_count", "get_image_name")
        )
    except AttributeError as error:
        raise MenagerieError(
            "this system", "does not tell which libraries a process has loaded"
        ) from error
    name.argtypes, name.restype = [ctypes.c_uint32], ctypes.c_char_p
    return [os.fsdecode(name(number) or b"") for number in range(count())]


def machine() -> str:
    """This machine in a phrase: processor, cores, system."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return f"{model}, {cores()} cores, {platform.system()} {platform.machine()}"


def cores() -> int:
    """How many cores this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)  # macOS pins no process
    return len(affinity(0)) if affinity else os.cpu_count() or 1
