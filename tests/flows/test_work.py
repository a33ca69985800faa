"""Working folders do not pile up."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from flows.work import new_work_folder

if TYPE_CHECKING:
    from pathlib import Path


def test_folders_of_dead_processes_are_removed(own_home: Path) -> None:
    """A killed conversion's folder goes with the next work; living ones and strangers stay."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead = own_home / "work" / f"toy-cpu.{ended.pid}.0123abcd"
    alive = own_home / "work" / f"toy-cpu.{os.getppid()}.0123abcd"
    stranger = own_home / "work" / "notes"
    for folder in (dead, alive, stranger):
        (folder / "bundle").mkdir(parents=True)
    first, second = new_work_folder("toy-cpu"), new_work_folder("toy-cpu")
    assert first != second
    assert sorted(p.name for p in (own_home / "work").iterdir()) == sorted(
        [alive.name, stranger.name]
    )
