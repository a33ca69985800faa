"""A runtime that was built from older sources than the Python next to it says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

import menagerie
from menagerie import library
from menagerie.errors import SessionError
from menagerie.paths import built

SOURCES = Path(__file__).parents[2] / "runtime/lowering"


def test_a_missing_function_is_reported_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signature's library, in place of an old one, loads and lacks all the others."""
    [older] = [p for each in menagerie.__path__ for p in Path(each).glob("*menagerie-signature.*")]
    monkeypatch.setattr(library, "library_path", lambda _target: older)
    with pytest.raises(SessionError, match="make setup") as caught:
        library._loaded.__wrapped__("cpu")
    assert "lacks menagerie_version" in str(caught.value)
    assert caught.value.place == str(older)


@pytest.mark.parametrize("source", sorted(SOURCES.iterdir()), ids=lambda path: path.name)
def test_lowering_reads_what_the_sources_say(source: Path) -> None:
    """What a build has copied is what is committed; if this fails: make setup."""
    assert built(f"lowering/{source.name}").read_bytes() == source.read_bytes()


def test_what_was_never_copied_is_reported_with_the_command() -> None:
    """As where a checkout is newer than its build."""
    with pytest.raises(SessionError, match="make setup") as caught:
        built("lowering/newer.h")
    assert caught.value.place == "lowering/newer.h"
