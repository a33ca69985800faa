"""Text from a bundle, a store or a server cannot steer the terminal that it is shown on."""

from __future__ import annotations

import io
import json

import pytest

from flows.cli.output import messages, results, table
from menagerie.cli import main
from menagerie.figures import printable
from menagerie.terminal import write_json

ESCAPES = ["\x1b[2J\x1b[H", "\x1b]0;title\x07", "\x9b31m", "a\rb", "\x08\x08", "\u202egnp.exe"]

ODD = ["\ud800", "a\u00a0b\u2028", "\U000e0041", "plain \u00e9"]


@pytest.mark.parametrize("text", ESCAPES)
def test_escapes_are_written_out(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No control character is left, in our errors or in the system's."""
    assert all(c.isprintable() for c in printable(text))
    for command in ("run", "trust"):
        assert main([command, text]) > 0
        shown = capsys.readouterr().err
        assert all(c.isprintable() for c in shown.rstrip("\n")), shown


@pytest.mark.parametrize("text", [*ESCAPES, *ODD])
def test_json_reads_the_same_and_steers_nothing(
    capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """Of a command, and of an event in the log: C1 controls and reversed text are escaped."""
    write_json({"name": text, text: [text]})
    written = capsys.readouterr().out
    assert json.loads(written) == {"name": text, text: [text]}
    assert all(c.isprintable() or c in "\n\u00a0" for c in written)


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
