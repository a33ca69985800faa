"""Working folders: one for each piece of work, gone when it ends, even if it was killed.

A folder is called `<work>.<host>.<process>.<birth>.<random>`: see `zoo.processes.Owner`.
"""

from __future__ import annotations

import re
import shutil
import time
import uuid
from typing import TYPE_CHECKING

from flows.machine.files import entries
from menagerie.paths import home
from zoo.processes import Owner

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["abandoned_work", "new_work_folder"]

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_OURS = re.compile(
    r".+\.(?P<host>[\w-]{1,64})\.(?P<pid>[1-9][0-9]{0,8})\.(?P<born>[0-9a-f]{12})\.[0-9a-f]{8}",
    re.ASCII,
)
_FOREIGN_DAYS = 7.0  # after which nobody elsewhere is believed to work in a folder still
_DAY = 86400.0


def new_work_folder(name: str) -> Path:
    """The path of a folder for this process alone, not made yet; its user removes it.

    Folders of processes that no longer live are removed first: a killed conversion leaves a bundle
    that nobody will use, and bundles are large.
    """
    for folder in abandoned_work():
        shutil.rmtree(folder, ignore_errors=True)
    owner = Owner.this()
    whose = f"{owner.host}.{owner.pid}.{owner.born}"
    return home() / "work" / f"{_UNSAFE.sub('-', name)}.{whose}.{uuid.uuid4().hex[:8]}"


def abandoned_work() -> list[Path]:
    """The folders of processes that are no more.

    Whether a process of another host lives, or of another user, may not be seen from here: then its
    folder counts as abandoned when nothing in it has changed for a week.
    """
    place = home() / "work"
    place.mkdir(exist_ok=True)
    return [folder for folder in sorted(place.iterdir()) if not _in_use(folder)]


def _in_use(folder: Path) -> bool:
    found = _OURS.fullmatch(folder.name)
    if found is None:
        return True  # none of ours
    owner = Owner(host=found["host"], pid=int(found["pid"]), born=found["born"])
    if (lives := owner.lives()) is None:
        latest = max((status.st_mtime for _, status in entries(folder)), default=0.0)
        return latest > time.time() - _FOREIGN_DAYS * _DAY
    return lives
