"""Working folders do not pile up."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from flows.work import abandoned_work, entries, new_work_folder

if TYPE_CHECKING:
    from pathlib import Path

DAY = 86400


def folder_of_the_dead(home: Path) -> Path:
    """A working folder of a process that was killed."""
    code = (
        "import os, signal; from flows.work import new_work_folder;"
        "made = new_work_folder('toy-cpu'); (made / 'bundle').mkdir(parents=True);"
        "print(made.name, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False
    )
    return home / "work" / done.stdout.strip()


def renamed(folder: Path, part: int, text: str) -> Path:
    """The same folder with another part of its name: 1 host, 2 process, 3 birth."""
    parts = folder.name.split(".")
    parts[part] = text
    return folder.rename(folder.with_name(".".join(parts)))


def aged(folder: Path, days: float) -> None:
    """Everything in it, and itself, last changed so long ago."""
    then = time.time() - days * DAY
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (then, then))


def test_folders_of_dead_processes_are_removed(own_home: Path) -> None:
    """A killed conversion's folder goes with the next work; living ones and strangers stay."""
    alive = new_work_folder("toy-cpu")
    stranger = own_home / "work" / "notes"
    for folder in (alive, stranger):
        (folder / "bundle").mkdir(parents=True)
    dead = folder_of_the_dead(own_home)
    assert abandoned_work() == [dead]
    first, second = new_work_folder("toy-cpu"), new_work_folder("toy-cpu")
    assert first != second
    assert sorted((own_home / "work").iterdir()) == sorted([alive, stranger])


def test_a_process_id_that_was_given_anew_owns_nothing(own_home: Path) -> None:
    """The id of a living process, this one, under another birth: its owner has ended."""
    dead = renamed(folder_of_the_dead(own_home), 2, str(os.getpid()))
    assert abandoned_work() == [dead]


def test_another_host_is_believed_for_a_week(own_home: Path) -> None:
    """A dead process's folder under another host's name stays while anything in it is younger."""
    foreign = renamed(folder_of_the_dead(own_home), 1, "elsewhere-0123456789ab")
    aged(foreign, 6.9)
    assert abandoned_work() == []
    aged(foreign, 7.1)
    assert abandoned_work() == [foreign]
    (foreign / "bundle" / "weights").write_text("")
    os.utime(foreign / "bundle", (0, 0))
    assert abandoned_work() == []


@pytest.mark.parametrize("node", ["", "mac.local", "../../etc", "a b\n$(x)", "häuser", "x" * 300])
def test_names_are_safe_whatever_the_host_is_called(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, node: str
) -> None:
    """One plain name, directly in the folder of work, short enough, and recognised as in use."""
    monkeypatch.setattr(platform, "node", lambda: node)
    made = new_work_folder("toy-cpu")
    assert made.parent == own_home / "work"
    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,150}", made.name)
    made.mkdir()
    aged(made, 100)
    assert abandoned_work() == []


def test_hosts_that_differ_in_unsafe_letters_alone_differ(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left out of the name is still in its digest."""
    monkeypatch.setattr(platform, "node", lambda: "a.b")
    made = new_work_folder("toy-cpu")
    (made / "x").mkdir(parents=True)
    digest = hashlib.sha256(b"something else").hexdigest()[:12]
    renamed(made, 3, digest)  # dead, were it of this host
    monkeypatch.setattr(platform, "node", lambda: "a b")
    assert abandoned_work() == []


def test_what_vanishes_while_it_is_looked_at_is_left_out(tmp_path: Path) -> None:
    """A file and a whole folder, removed by another process between two looks."""
    for name in ("one", "two", "three", "below/x", "beside/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    seen = []
    for path, _ in entries(tmp_path):
        seen.append(path)
        if path.is_dir() and path != tmp_path:  # the first of two: its files are still to come
            for name in ("one", "two", "below/x", "beside/x"):
                (tmp_path / name).unlink(missing_ok=True)
    assert seen[0] == tmp_path
    assert {path.name for path in seen[1:]} == {"below", "beside", "three"}
    assert list(entries(tmp_path / "one")) == []
