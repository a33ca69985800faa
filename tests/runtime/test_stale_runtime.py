"""A runtime that was built from older sources than the Python beside it says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

import menagerie
from menagerie import library
from menagerie.errors import SessionError


def test_a_missing_function_is_told_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signature's library stands in for an old one: it loads, and lacks all the others."""
    [older] = [p for each in menagerie.__path__ for p in Path(each).glob("*menagerie-signature.*")]
    monkeypatch.setattr(library, "library_path", lambda _target: older)
    with pytest.raises(SessionError, match="make setup") as caught:
        library._loaded.__wrapped__("cpu")
    assert "lacks menagerie_version" in str(caught.value)
    assert caught.value.place == str(older)
