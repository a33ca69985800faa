"""Identity of a process, unique among hosts and containers, and its role: worker or not.

Process ids do not suffice: hosts and containers that share a folder or a store assign the same
ids, and ids are reused.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from contextlib import suppress
from pathlib import Path

from pydantic import Field

from zoo.base_models import Frozen

_LINUX = platform.system() == "Linux"
_PROC = Path("/proc")
_SPACE = Path("/proc/self/ns/pid")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_MOST = 2**31 - 1
ROLE = "MENAGERIE_ROLE"
WORKER = "worker"
OWN_STORE = "MENAGERIE_OWN_STORE"


class Owner(Frozen):
    """A process that owns something, in a form that other hosts can read."""

    # The host's name, and a digest of it and of the namespace of the process id.
    host: str = Field(pattern=r"^[A-Za-z0-9_-]+$", max_length=64)
    pid: int = Field(ge=1, le=_MOST)
    born: str = Field(pattern=r"^[0-9a-f]{12}$")  # a digest of its start time

    @classmethod
    def this(cls) -> Owner:
        """Return this process as an owner."""
        pid = os.getpid()
        return cls(host=_host(), pid=pid, born=_digest(birth(pid) or ""))

    def lives(self) -> bool | None:
        """Return whether the process still runs; None if that is not visible from here."""
        if self.host != _host():
            return None
        with suppress(PermissionError):  # another user's, if /proc hides those
            if (born := birth(self.pid)) is not None:
                return _digest(born) == self.born
        try:
            os.kill(self.pid, 0)
        except PermissionError:
            return None
        except ProcessLookupError:
            return False
        return False  # a zombie


def birth(pid: int) -> str | None:
    """Return a process's start time, as text that no other process with this id has.

    On Linux it is ticks since boot and the boot's id, which setting the clock does not change; on
    macOS it is the date, to a second. None if there is no such process, or it is a zombie.
    """
    if _LINUX:
        try:
            # See proc(5): the name in brackets may contain anything, even brackets and blanks.
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


def _host() -> str:
    """Return this host's name, with a digest of it and of its process id namespace.

    Containers that share the host's network share its name, but not its processes.
    """
    node, space = platform.node(), ""
    with suppress(OSError):  # not on macOS
        space = str(_SPACE.readlink())
    return f"{_UNSAFE.sub('-', node)[:32]}-{_digest(f'{node} {space}')}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def is_worker() -> bool:
    """Return whether this is a worker, whose service sets `MENAGERIE_ROLE=worker`."""
    return os.environ.get(ROLE) == WORKER


def owns(store: str) -> bool:
    """Return whether `store` is this user's own: the local cluster's, in every process.

    The cluster and its worker run as the owner of the keys, so a manual promotion would check the
    same proofs against the same manifest.
    """
    return os.environ.get(OWN_STORE) == store
