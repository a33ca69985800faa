"""The output of a command line: aligned columns, JSON, and a status line."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

from menagerie.errors import MenagerieError, UsageError
from menagerie.figures import in_ascii, printable, shown_json


def write_json(value: Any) -> None:
    """Write only JSON to standard output, with NaN and infinities as texts, as in report.json."""
    from menagerie.typed_json import plain

    sys.stdout.write(shown_json(plain(value), indent=2, allow_nan=False) + "\n")


def write_in_any_encoding() -> None:
    """Make standard output and error use ASCII for letters that their encodings lack."""
    codecs.register_error(in_ascii.__name__, in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=in_ascii.__name__)


def written_out(work: Callable[[], int]) -> int:
    """Return what `work` returns, after standard output took all text or lost its reader.

    Raise MenagerieError if standard output is closed, or accepts no more, e.g. on a full disk.
    """
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115 - `2>&-` closes it
    write_in_any_encoding()
    if sys.stdout is None:  # type: ignore[unreachable, unused-ignore]
        raise UsageError("standard output", "is closed", "Send it to /dev/null to be rid of it")
    code = 0
    try:
        try:
            code = work()
        finally:
            sys.stdout.flush()
    except OSError as error:
        try:  # again: the error may concern another file; unbuffered, nothing is left
            sys.stdout.write("" if error.filename else "\n")
            sys.stdout.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        else:
            raise
        if isinstance(error.__context__, MenagerieError):  # the reason to stop writing
            raise error.__context__ from None
        if not isinstance(error, BrokenPipeError):  # e.g. `zoo list | head`
            why = f"takes no more: {error.strerror or error}"
            raise MenagerieError("standard output", why, "Send it to where there is room") from None
    return code


def columns(head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()) -> str:
    """Align columns under their names, those in `right` to the right, without line breaks."""
    cells = [[printable(cell, keep="") for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]  # noqa: B905 - Python 3.10
    lines = (
        "  ".join(
            f"{cell:>{width}}" if name in right else f"{cell:<{width}}"
            for cell, width, name in zip(row, widths, head)  # noqa: B905
        )
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def painted(text: str, good: bool | None) -> str:
    """Colour `text` green or red on a terminal that has colours; None leaves it unchanged."""
    if good is None or not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        return text
    return f"\x1b[{32 if good else 31}m{text}\x1b[0m"


class Status:
    """A status line, only on a terminal; it disappears when the work ends."""

    def __init__(self) -> None:
        self._shown = ""
        self._live = sys.stderr.isatty()

    def show(self, text: str) -> None:
        """Replace the status line with `text`."""
        if self._live and text != self._shown:
            self._shown = text
            sys.stderr.write(f"\r{printable(text, keep='')}\x1b[K")
            sys.stderr.flush()

    def __enter__(self) -> Status:  # noqa: PYI034 - Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
