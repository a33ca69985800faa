"""What is kept between two commands: private, whole, and no secret where it does not belong."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from flows.connection import ClusterState, manager_socket, running, state_path, write_private
from zoo.errors import MenagerieError

if TYPE_CHECKING:
    from pathlib import Path

PORTS = {"api": 4200, "worker": 1, "s3": 2, "database": 3}


def mode(path: Path) -> int:
    """Permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


def test_a_cluster_that_never_was() -> None:
    """No state, and no error."""
    assert ClusterState.load() is None


def test_state_comes_back_as_it_was() -> None:
    """Every field, secrets too, from a file that only its owner reads."""
    state = ClusterState.make(PORTS).model_copy(update={"up": True, "applied": "abc"})
    state.save()
    assert ClusterState.load() == state
    assert mode(state_path()) == 0o600


@pytest.mark.parametrize("content", ["", "{", "[]", '{"api_auth": "hush", "s3_secret": 1}'])
def test_damaged_state_is_one_error(content: str) -> None:
    """Which file, and what to do; the error and its causes hold nothing of the file."""
    state_path().parent.mkdir(parents=True)
    write_private(state_path(), content)
    with pytest.raises(MenagerieError, match="zoo cluster down") as caught:
        ClusterState.load()
    assert str(caught.value).startswith(str(state_path()))
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_each_cluster_has_secrets_of_its_own() -> None:
    """Long ones, and not one in place of two."""
    made, other = ClusterState.make(PORTS), ClusterState.make(PORTS)
    assert other.api_auth != made.api_auth
    assert other.s3_secret != made.s3_secret
    assert len(other.s3_secret.get_secret_value()) >= 40
    assert other.s3_secret.get_secret_value() not in other.api_auth.get_secret_value()


def test_secrets_do_not_show_by_accident() -> None:
    """Neither printing nor formatting shows them."""
    made = ClusterState.make(PORTS)
    for shown in (repr(made), str(made), f"{made.api_auth}", str(made.model_dump())):
        assert made.api_auth.get_secret_value() not in shown
        assert made.s3_secret.get_secret_value() not in shown


def test_secrets_that_others_may_read_are_refused() -> None:
    """One line with the cure."""
    ClusterState.make(PORTS).save()
    state_path().chmod(0o640)
    with pytest.raises(MenagerieError, match="chmod 600"):
        ClusterState.load()


@pytest.mark.parametrize("name", ["home", "x" * 120])
def test_supervisord_is_reached_wherever_our_folder_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A socket's name has 104 bytes on macOS; where no process listens, nothing runs."""
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path / name))
    assert len(str(manager_socket())) < 100
    assert running() == {}


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    """A text that cannot be written leaves the old one, and no remains next to it."""
    path = tmp_path / "file"
    write_private(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_private(path, "new \ud800")
    assert path.read_text() == "old"
    assert [p for p in tmp_path.iterdir() if p.is_file()] == [path]
