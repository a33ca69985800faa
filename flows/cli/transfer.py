"""A progress bar for bytes on their way, on standard error."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from flows.cli.output import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["transfer"]


@contextmanager
def transfer(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar called `what`; yields the callback that takes bytes done and bytes in all."""
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
