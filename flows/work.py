"""This machine's files: a working folder for each piece of work, and their cleanup.

A folder is called `<work>.<host>.<process>.<birth>.<random>` (see `zoo.processes.Owner`), so that
the folders of killed processes are found and removed.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

from menagerie.figures import size
from menagerie.paths import home
from zoo.base_models import Frozen
from zoo.processes import Owner
from zoo.store import KeepRule, open_store
from zoo.store.garbage_collection import SweepResult, sweep

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_OURS = re.compile(
    r".+\.(?P<host>[\w-]{1,64})\.(?P<pid>[1-9][0-9]{0,8})\.(?P<born>[0-9a-f]{12})\.[0-9a-f]{8}",
    re.ASCII,
)
_FOREIGN_DAYS = 7.0  # after which no process of another host is assumed to use a folder
_DAY = 86400.0
_UNUSED_DAYS = 30.0
# Logs without the JSON lines, which log shippers read.
_SWEPT = ("logs/*.log", "fetched/*/", "headers/*/", "submissions/*/", "unpacked/*/")


def entries(top: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield `top` and everything below it with `lstat` results, without following links.

    Entries that vanish in the meantime, or may not be read, are left out.
    """
    below = (Path(folder, name) for folder, subs, files in os.walk(top) for name in (*subs, *files))
    for path in chain([top], below):
        try:
            found = path.lstat()
        except OSError:
            continue
        yield path, found


def new_work_folder(name: str) -> Path:
    """Return the path of a folder for this process, not created yet; the caller removes it.

    Folders of ended processes are removed first: a killed conversion leaves a useless bundle, and
    bundles are large.
    """
    for folder in abandoned_work():
        shutil.rmtree(folder, ignore_errors=True)
    owner = Owner.this()
    whose = f"{owner.host}.{owner.pid}.{owner.born}"
    return home() / "work" / f"{_UNSAFE.sub('-', name)}.{whose}.{uuid.uuid4().hex[:8]}"


def abandoned_work() -> list[Path]:
    """Return the folders of ended processes.

    Processes of another host or user may not be visible from here; their folders count as abandoned
    if nothing in them has changed for a week.
    """
    place = home() / "work"
    place.mkdir(exist_ok=True)
    return [folder for folder in sorted(place.iterdir()) if not _in_use(folder)]


def _in_use(folder: Path) -> bool:
    found = _OURS.fullmatch(folder.name)
    if found is None:
        return True  # not ours
    owner = Owner(host=found["host"], pid=int(found["pid"]), born=found["born"])
    if (lives := owner.lives()) is None:
        latest = max((status.st_mtime for _, status in entries(folder)), default=0.0)
        return latest > time.time() - _FOREIGN_DAYS * _DAY
    return lives


class Collected(Frozen):
    """Files that were removed, or would be."""

    store: str
    dry_run: bool
    swept: SweepResult
    local_files: int
    local_bytes: int

    @property
    def summary(self) -> str:
        """The result on one line."""
        s = self.swept
        builds = f"{len(s.releases)} releases, {len(s.candidates)} candidates"
        what = f"{builds}, {s.blobs} files ({size(s.bytes)})"
        here = f"{self.local_files} of its own ({size(self.local_bytes)})"
        kept = f"{s.kept_releases} releases and {s.kept_blobs} files stay"
        return f"{'would remove' if self.dry_run else 'removed'} {what} and {here}; {kept}"


def collect(store: str, keep: KeepRule, *, dry_run: bool) -> Collected:
    """Sweep the store, then Menagerie's own folder.

    Raise MenagerieError if the store could not be swept; releases are then still complete.
    """
    swept = sweep(open_store(store).objects, keep, dry_run=dry_run)
    files, taken = _sweep_home(dry_run=dry_run)
    return Collected(
        store=store, dry_run=dry_run, swept=swept, local_files=files, local_bytes=taken
    )


def _sweep_home(*, dry_run: bool) -> tuple[int, int]:
    """Remove work folders of ended processes and files unused for a month; return count and size.

    A jumping clock can only delay removals or remove a file that is made again.
    """
    found = [*abandoned_work(), *_unused()]
    files = (status for path in found for _, status in entries(path))
    size = sum(status.st_size for status in files if stat.S_ISREG(status.st_mode))
    if not dry_run:
        for path in found:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    return len(found), size


def _unused() -> Iterator[Path]:
    """Yield entries, except links, whose time of last use is at least a month ago."""
    before = time.time() - _UNUSED_DAYS * _DAY
    for pattern in _SWEPT:
        is_meant = stat.S_ISDIR if pattern.endswith("/") else stat.S_ISREG
        for path in sorted(home().glob(pattern)):
            with suppress(OSError):  # vanished in the meantime
                found = path.lstat()
                if is_meant(found.st_mode) and found.st_mtime < before:
                    yield path
