"""Text from a bundle, a store or a server cannot steer the terminal that it is shown on."""

from __future__ import annotations

import io

import pytest

from flows.cli.output import messages, results, table
from menagerie.cli import _told
from menagerie.errors import StoreError
from menagerie.terminal import printable

ESCAPES = ["\x1b[2J\x1b[H", "\x1b]0;title\x07", "\x9b31m", "a\rb", "\x08\x08", "\u202egnp.exe"]


@pytest.mark.parametrize("text", ESCAPES)
def test_escapes_are_written_out(text: str) -> None:
    """Nothing of what a terminal acts on is left."""
    assert all(c.isprintable() for c in printable(text))
    assert "\x1b" not in _told(StoreError(text, text, text))


@pytest.mark.parametrize("text", [*ESCAPES, "[/bold]", "[link=https://x]y"])
def test_a_table_shows_any_text(text: str) -> None:
    """A name with brackets ends no command, and one with escapes does nothing."""
    for console in (results(), messages()):
        console.file = io.StringIO()
        shown = table("model")
        shown.add_row(text)
        console.print(shown)
        console.print(f"{text}: done")
        written = console.file.getvalue()
        assert "done" in written
        assert all(c.isprintable() or c == "\n" for c in written)
