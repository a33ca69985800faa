"""The cache folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from menagerie.paths import home
from menagerie.trust import trusted_place
from zoo.errors import StoreError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def test_named_folder_is_created_for_its_owner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """$MENAGERIE_HOME decides; others on the machine cannot swap files in it."""
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path / "a" / "b"))
    assert home() == tmp_path / "a" / "b"
    assert home().stat().st_mode & 0o777 == 0o700


def test_default_is_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset or empty, the platform's cache folder is taken."""
    monkeypatch.setenv("MENAGERIE_HOME", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home().is_relative_to(tmp_path)
    assert home().name == "menagerie"


def test_impossible_folder_is_one_line_of_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in the way is a UsageError that names the variable to set."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(UsageError, match="Set MENAGERIE_HOME to a folder you can write to"):
        home()


def test_a_home_of_no_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """`~` of an unknown user is no folder."""
    monkeypatch.setenv("MENAGERIE_HOME", "~no_such_user_here/cache")
    with pytest.raises(UsageError, match=r"is not known.*Set MENAGERIE_HOME"):
        home()


@pytest.mark.parametrize(("name", "mode"), [("", 0o1777), ("", 0o777), ("trust", 0o777)])
def test_what_all_users_may_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, mode: int
) -> None:
    """Such as /tmp, whichever user owns it: others put folders of theirs there."""
    (tmp_path / "all" / "trust").mkdir(parents=True)
    (tmp_path / "all" / name).chmod(mode)
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path / "all"))
    monkeypatch.delenv("MENAGERIE_TRUST", raising=False)
    with pytest.raises(UsageError, match=rf"{name}: is writable by everyone\. .* of your own$"):
        trusted_place()


def test_a_place_that_cannot_be_looked_at_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system's error, when asked whether it is there, is reported in a line."""
    monkeypatch.setenv("MENAGERIE_TRUST", f"/{'x' * 300}")
    with pytest.raises(StoreError, match="file name too long"):
        trusted_place()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change a file's owner")
@pytest.mark.parametrize("name", ["", "trust"])
def test_another_user_s_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """He could put keys there that were never chosen, or exchange what is kept."""
    (tmp_path / "own" / "trust").mkdir(parents=True)
    os.chown(tmp_path / "own" / name, 12345, -1)
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path / "own"))
    monkeypatch.delenv("MENAGERIE_TRUST", raising=False)
    with pytest.raises(UsageError, match=rf"{name}: belongs to another user\. .* of your own$"):
        trusted_place()
