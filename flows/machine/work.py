"""Working folders: one for each piece of work, gone when it ends, even if it was killed.

A folder is called `<work>.<host>.<process>.<birth>.<random>`, whatever makes its owner certain:
hosts and containers that share a folder give the same process ids, and ids are given anew.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import time
import uuid
from contextlib import suppress
from pathlib import Path

from flows.machine.births import birth
from flows.machine.files import entries
from zoo.home import home

__all__ = ["abandoned_work", "new_work_folder"]

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_OURS = re.compile(
    r".+\.(?P<host>[\w-]+)\.(?P<pid>[1-9][0-9]{0,9})\.(?P<born>[0-9a-f]{12})\.[0-9a-f]{8}",
    re.ASCII,
)
_FOREIGN_DAYS = 7.0  # after which nobody elsewhere is believed to work in a folder still
_DAY = 86400.0
_SPACE = Path("/proc/self/ns/pid")


def new_work_folder(name: str) -> Path:
    """The path of a folder for this process alone, not made yet; its user removes it.

    Folders of processes that no longer live are removed first: a killed conversion leaves a bundle
    that nobody will use, and bundles are large.
    """
    for folder in abandoned_work():
        shutil.rmtree(folder, ignore_errors=True)
    pid = os.getpid()
    owner = f"{_host()}.{pid}.{_digest(birth(pid) or '')}"
    return home() / "work" / f"{_UNSAFE.sub('-', name)}.{owner}.{uuid.uuid4().hex[:8]}"


def abandoned_work() -> list[Path]:
    """The folders of processes that are no more.

    Whether a process of another host lives cannot be seen from here: its folder counts as abandoned
    when nothing in it has changed for a week.
    """
    place = home() / "work"
    place.mkdir(exist_ok=True)
    return [folder for folder in sorted(place.iterdir()) if not _in_use(folder)]


def _in_use(folder: Path) -> bool:
    owner = _OURS.fullmatch(folder.name)
    if owner is None:
        return True  # none of ours
    if owner["host"] != _host():
        latest = max((found.st_mtime for _, found in entries(folder)), default=0.0)
        return latest > time.time() - _FOREIGN_DAYS * _DAY
    born = birth(int(owner["pid"]))
    return born is not None and _digest(born) == owner["born"]


def _host() -> str:
    """This host's name, and a digest of it and of the space in which its process ids hold.

    Containers that share the host's network share its name as well, but not its processes.
    """
    node, space = platform.node(), ""
    with suppress(OSError):  # not on macOS
        space = str(_SPACE.readlink())
    return f"{_UNSAFE.sub('-', node)[:32]}-{_digest(f'{node} {space}')}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
