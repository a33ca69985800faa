"""Where the command line writes: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any

from zoo.errors import MenagerieError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["complain", "decibels", "emit", "figure", "messages", "results", "size", "table"]

_KIB = 1024
_FILE_WIDTH = 140  # where there is no terminal to ask


def results() -> Console:
    """Standard output, for what the command was asked for."""
    from rich.console import Console

    wide = None if sys.stdout.isatty() else _FILE_WIDTH
    return Console(highlight=False, soft_wrap=True, width=wide)


def messages() -> Console:
    """Standard error, for progress, remarks and complaints."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def emit(value: Any) -> None:
    """Write `value` as JSON to standard output, and nothing else goes there.

    JSON has no NaN and no infinity: they become strings, the same as in report.json.
    """
    json.dump(_finite(value), sys.stdout, indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def complain(error: BaseException) -> None:
    """Say in red what went wrong and what to do, without a traceback."""
    from rich.text import Text

    if isinstance(error, MenagerieError):
        line = str(error)
    elif isinstance(error, OSError):
        line = f"{error.filename or 'system'}: {error.strerror or error}"
    else:
        first = (str(error).strip().splitlines() or ["no message"])[0]
        line = f"zoo: {type(error).__name__}: {first}. Set MENAGERIE_DEBUG=1 to see where"
    messages().print(Text(line, style="red"))


def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """An empty table in the house style; the columns named in `right` hold figures."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def figure(value: float | None, form: str) -> str:
    """`value` by a format string such as `{:.2f} ms`; a dash for None."""
    return "–" if value is None else form.format(value)  # noqa: RUF001


def decibels(value: float | None) -> str:
    """A signal-to-noise ratio; infinite where the bits are equal."""
    return "bit-equal" if value == math.inf else figure(value, "{:.0f} dB")


def size(count: int | None) -> str:
    """Bytes for a person, e.g. `44.7 MiB`."""
    if count is None:
        return "–"  # noqa: RUF001
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < _KIB:
            break
        value, unit = value / _KIB, larger
    return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
