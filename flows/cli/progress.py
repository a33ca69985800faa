"""The live display of a conversion run: a line a model, with its stages and the time.

On a terminal the lines are redrawn; into a file or a pipe every finished stage is a line.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from flows.cli.output import messages
from flows.outcome.results import Outcome
from menagerie import figures
from tasks.job import Stage

if TYPE_CHECKING:
    from rich.progress import TaskID

    from flows.outcome.results import ModelResult

__all__ = ["LiveDisplay"]

_MARKS = {
    Outcome.PUBLISHED: "[green]published[/green]",
    Outcome.PROVEN: "[green]proven anew[/green]",
    Outcome.SKIPPED: "[dim]unchanged[/dim]",
    Outcome.FAILED: "[red]failed[/red]",
    Outcome.CRASHED: "[red]crashed[/red]",
    Outcome.TIMED_OUT: "[red]timed out[/red]",
}


class LiveDisplay:
    """Implements `flows.services.Listener` with Rich, on standard error."""

    def __init__(self) -> None:
        self._console = messages()
        self._live = self._console.is_terminal
        self._progress = Progress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.fields[label]}", style="bold"),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._live,
        )
        self._tasks: dict[tuple[str, str], TaskID] = {}
        self._done: dict[tuple[str, str], list[Stage]] = {}
        self._status: TaskID | None = None
        self._lock = threading.Lock()

    def status(self, text: str) -> None:
        """Show what goes on while no model is at work yet."""
        if not self._live:
            self._console.print(text)
        elif self._status is None:
            self._status = self._progress.add_task(text, total=None, label="zoo")
        else:
            self._progress.update(self._status, description=text)

    def stage_began(self, model: str, target: str, stage: Stage) -> None:
        """See `Listener`."""
        with self._lock:
            self._describe(model, target, stage)

    def stage_ended(self, model: str, target: str, stage: Stage, seconds: float) -> None:
        """See `Listener`."""
        with self._lock:
            self._done.setdefault((model, target), []).append(stage)
        if not self._live:
            self._console.print(f"{model} for {target}: {stage} {figures.seconds(seconds)}")

    def model_ended(self, result: ModelResult) -> None:
        """See `Listener`."""
        key = (result.model, result.target)
        text = _MARKS[result.outcome]
        if result.stage is not None:
            text += f" in {result.stage}"
        if result.confirmation is not None:
            text += f", {result.remark or result.confirmation}"
        if not self._live:
            self._console.print(f"{result.model} for {result.target}: {text}")
            return
        with self._lock:
            if key not in self._tasks:  # a worker converted it, and we heard of no stage
                self._tasks[key] = self._progress.add_task("", label=" ".join(key))
        self._progress.update(self._tasks[key], description=text, total=1, completed=1)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _describe(self, model: str, target: str, stage: Stage) -> None:
        key = (model, target)
        if self._status is not None:
            self._progress.remove_task(self._status)
            self._status = None
        if key not in self._tasks:
            self._tasks[key] = self._progress.add_task("", total=None, label=f"{model} {target}")
        done = self._done.get(key, [])
        steps = [
            f"[green]{s}[/green]"
            if s in done
            else f"[cyan]{s} …[/cyan]"
            if s is stage
            else f"[dim]{s}[/dim]"
            for s in Stage
            if s is not Stage.LOCATE or s is stage  # only after a failure
        ]
        self._progress.update(self._tasks[key], description=" ".join(steps))
