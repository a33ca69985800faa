"""A process is distinguished from others, and called alive or ended only where it can be seen."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from pydantic import ValidationError

from zoo.processes import Owner, birth

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def other() -> subprocess.Popen[bytes]:
    """A process that lives until its input is closed."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    return subprocess.Popen(command, stdin=subprocess.PIPE)


def test_an_owner_lives_as_long_as_its_process(other: subprocess.Popen[bytes]) -> None:
    """Not as a zombie, and not when another has its id; written down and read, it is the same."""
    this = Owner.this()
    born = birth(other.pid)
    assert this.pid == os.getpid()
    assert Owner.model_validate_json(this.model_dump_json()) == this
    assert this.lives() is True
    assert this.model_copy(update={"pid": other.pid}).lives() is False  # born at another time
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert psutil.Process(other.pid).status() == psutil.STATUS_ZOMBIE
    assert birth(other.pid) is None
    assert this.model_copy(update={"pid": other.pid}).lives() is False
    other.communicate()
    assert this.model_copy(update={"pid": other.pid}).lives() is False
    assert born not in (None, birth(os.getpid()))


@pytest.mark.parametrize("where", ["host", "container"])
def test_of_a_process_elsewhere_nothing_is_known(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another host, and under this one's name in a space of process ids of its own."""
    with monkeypatch.context() as patch:
        if where == "host":
            patch.setattr("platform.node", lambda: "elsewhere")
        else:
            (tmp_path / "pid").symlink_to("pid:[1]")
            patch.setattr("zoo.processes._SPACE", tmp_path / "pid")
        theirs = Owner.this()
    assert theirs.host != Owner.this().host
    assert theirs.lives() is None


def test_a_process_of_another_user_may_be_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `hidepid`: it is there, but not when it began."""
    this = Owner.this()

    def refused(*_: object) -> None:
        raise PermissionError

    for hidden in (lambda _: None, refused):
        monkeypatch.setattr("zoo.processes.birth", hidden)
        monkeypatch.setattr(os, "kill", refused)
        assert this.lives() is None


@pytest.mark.parametrize(
    "changes",
    [{"pid": 0}, {"pid": -1}, {"pid": 2**31}, {"host": "../x"}, {"host": ""}, {"born": "now"}],
)
def test_what_is_no_process_is_refused(changes: dict[str, object]) -> None:
    """A note comes from a store that others write to."""
    with pytest.raises(ValidationError):
        Owner.model_validate(Owner.this().model_dump() | changes)
