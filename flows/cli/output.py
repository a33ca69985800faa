"""Output of the command line: results on standard output, everything else on standard error."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import typer

from menagerie.figures import printable
from menagerie.terminal import write_json
from zoo.errors import MenagerieError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

    from zoo.errors import Check

T = TypeVar("T")

AS_JSON = ContextVar("as_json", default=False)  # whether the current command has `--json`
NARROW = 100  # terminal columns below which tables show less
_LONG_WORD = 16  # letters; longer words, such as hashes, may be cut
_FILE_WIDTH = 1000  # without a terminal, so that a row is a line


@cache
def _console() -> type[Console]:
    """Return a Rich console in which foreign text can neither control the terminal nor raise."""
    from rich.console import Console

    class SafeConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(printable(text), **options)

    return SafeConsole


def results() -> Console:
    """Return a console on standard output, for a command's result."""
    wide = None if sys.stdout.isatty() else _FILE_WIDTH
    return _console()(highlight=False, markup=False, soft_wrap=True, width=wide)


def messages() -> Console:
    """Return a console on standard error, for progress, remarks and errors."""
    return _console()(stderr=True, highlight=False, markup=False, soft_wrap=True)


def answer(value: object, *shown: RenderableType, succeeded: bool = True) -> None:
    """Print a command's result, as JSON with `--json`, else as text; exit with 1 if it failed."""
    if AS_JSON.get():
        write_json(value)
    for each in () if AS_JSON.get() else shown:
        results().print(_with_whole_words(each))
    if not succeeded:
        raise typer.Exit(1)


def remark(text: str) -> None:
    """Print a remark; on standard error with JSON, so that standard output has only the result."""
    (messages() if AS_JSON.get() else results()).print(text)


def complain(error: BaseException) -> None:
    """Print an error and its next step in red, without a traceback."""
    from rich.text import Text

    if isinstance(error, MenagerieError):
        line = str(error)
    elif isinstance(error, OSError):
        line = f"{error.filename or 'system'}: {error.strerror or error}"
    else:
        first = (str(error).strip().splitlines() or ["no message"])[0]
        line = f"zoo: {type(error).__name__}: {first}. Set MENAGERIE_DEBUG=1 to see where"
    messages().print(Text(printable(line), style="red"))


def table(
    *columns: str, rows: Iterable[Iterable[RenderableType]] = (), right: tuple[str, ...] = ()
) -> Table:
    """Return a table in the house style; `right` columns hold figures, the first is never cut."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in right else "left"
        whole = column == columns[0]
        made.add_column(column, justify=justify, overflow="fold", no_wrap=whole)
    for row in rows:
        made.add_row(*row)
    return made


def _with_whole_words(shown: RenderableType) -> RenderableType:
    """Set least column widths, so that a narrow terminal does not cut the words of a table."""
    from rich.table import Table

    for column in shown.columns if isinstance(shown, Table) else ():
        words = " ".join(map(str, (column.header, *column.cells))).split()
        longest = min(_LONG_WORD, max(map(len, words), default=0))
        column.min_width = max(column.min_width or 0, longest)
    return shown


def shown_checks(checks: Iterable[Check]) -> Iterator[Text]:
    """Yield a line for each check, and another one for its next step."""
    from rich.text import Text

    from zoo.errors import Health

    styles = {Health.OK: "green", Health.WARN: "yellow", Health.FAIL: "red"}
    for check in checks:
        line = Text(f"{check.health:4}", style=styles[check.health])
        yield line.append(f"  {check.name:12} {check.detail}", style="default")
        if check.advice:
            yield Text(f"      {'':12} {check.advice}")


def figure(value: T | None, written: Callable[[T], str]) -> str:
    """Return a value formatted by a function of `menagerie.figures`; a dash for None."""
    return "–" if value is None else written(value)  # noqa: RUF001


@contextmanager
def transfer(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar called `what`; yield a callback that takes bytes done and bytes in total."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        console=messages(),
        transient=True,
    )
    with bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
