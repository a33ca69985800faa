"""Facts about this process: its parent's end, memory and libraries; and names of signals."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from pathlib import Path

from menagerie.errors import MenagerieError

_PR_SET_PDEATHSIG = 1  # of prctl(2)
_LOOPBACK = ("127.0.0.1", "localhost")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def end_with(parent: int, sent: signal.Signals = signal.SIGKILL) -> None:
    """Let Linux's kernel send this process `sent` when its parent ends for any reason.

    `parent` is its id from before this process began. If it has ended already, the kernel
    would send nothing, so this function sends the signal at once.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, sent, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), sent)


def signal_name(number: int) -> str:
    """Return `SIGSEGV` for 11; `signal 40` for a real-time signal, most of which have no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def peak_memory_bytes() -> int:
    """Return the peak resident memory of this process in bytes.

    Linux's ru_maxrss survives exec and would count a large parent; VmHWM starts anew.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def foreign_libraries() -> tuple[str, ...]:
    """List PyTorch's libraries in this process; raise MenagerieError if they are unknown."""
    maps = Path("/proc/self/maps")
    if maps.exists():
        names = {line.rpartition("/")[2] for line in maps.read_text().splitlines() if "/" in line}
    else:
        names = {path.rpartition("/")[2] for path in images_of(ctypes.CDLL(None))}
    return tuple(sorted(n for n in names if n.startswith(("libtorch", "libc10"))))


def images_of(loader: ctypes.CDLL) -> list[str]:
    """List the images that macOS's loader has mapped (dyld(3)); MenagerieError for another one."""
    try:
        count, name = (
            getattr(loader, f"_dyld_{what}") for what in ("image_count", "get_image_name")
        )
    except AttributeError as error:
        fact = "does not tell which libraries a process has loaded"
        raise MenagerieError("this system", fact) from error
    name.argtypes, name.restype = [ctypes.c_uint32], ctypes.c_char_p
    return [os.fsdecode(name(number) or b"") for number in range(count())]


def keep_off_proxies() -> None:
    """Make this process and its children connect to loopback without a proxy.

    If a proxy is set without an exception for loopback, requests to the local cluster would go
    to the proxy, with the server's secret in them.
    """
    if not any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXIES):
        return
    excepted = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    known = [each.strip() for each in excepted.split(",") if each.strip()]
    value = ",".join([*known, *(each for each in _LOOPBACK if each not in known)])
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = value
