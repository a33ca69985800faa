"""Output of `zoo convert`: a line per model while it runs, a table of results at the end.

On a terminal the lines are redrawn. In a file or a pipe a line is printed for each stage that
ended, for each long step that begins, and every ten seconds for a stage that is still running.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from flows.cli.output import NARROW, figure, messages, remark, results, table
from flows.results import Listener, Outcome
from menagerie.figures import decibels, error, milliseconds, printable, seconds, size, speed
from menagerie.format.bundle_manifest import ReleaseState
from menagerie.paths import home
from transforms.stages import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType
    from rich.progress import TaskID

    from flows.plan import PlannedModel
    from flows.results import ModelResult, RunResult
    from zoo.progress import StepDone

_STYLES = {Outcome.PUBLISHED: "green", Outcome.PROVEN: "green", Outcome.SKIPPED: "dim"}
_STYLES = dict.fromkeys(Outcome, "red") | _STYLES
_FIGURES = ("max abs error", "SNR", "latency", "against eager", "size", "time")


class LiveDisplay(Listener):
    """A listener that shows events with Rich, on standard error."""

    def __init__(self, beat_seconds: float = 10.0) -> None:
        super().__init__()
        self._beat_seconds = beat_seconds
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
        self._done: dict[tuple[str, str], set[Stage]] = {}
        self._status: TaskID | None = None
        self._lock = threading.Lock()
        self._at: dict[tuple[str, str], tuple[Stage, float, str]] = {}  # start, last step
        self._ended = threading.Event()
        self._beating = threading.Thread(target=self._beat, daemon=True)

    def status(self, text: str) -> None:
        """Show the current activity before the first model starts."""
        if not self._live:
            self._console.print(text)
        elif self._status is None:
            self._status = self._progress.add_task(text, total=None, label="zoo")
        else:
            self._progress.update(self._status, description=text)

    def run_began(self, address: str) -> None:
        """See `Listener`."""
        self._console.print(f"run     {address}")

    def stage_at(self, model: str, target: str, stage: Stage, step: StepDone | None = None) -> None:
        """See `Listener`."""
        with self._lock:
            key = (model, target)
            if self._status is not None:
                self._progress.remove_task(self._status)
                self._status = None
            if key not in self._tasks:
                self._tasks[key] = self._progress.add_task("", total=None, label=" ".join(key))
            before, began, _ = self._at.get(key, (None, 0.0, ""))
            began = began if stage is before else time.monotonic()
            self._at[key] = stage, began, "" if step is None else f": {step.text}"
            done = self._done.get(key, ())
            steps = [
                f"[green]{s}[/green]"
                if s in done
                else f"[cyan]{s} …[/cyan]"
                if s is stage
                else f"[dim]{s}[/dim]"
                for s in Stage
                if s is not Stage.LOCATE or s is stage  # only after a failure
            ]
            if step is not None:
                steps.append(f"[dim]{escape(step.text)}[/dim]")
                if step.begins:
                    self._print_line(key, f"{stage}: {step.text}")
            self._progress.update(self._tasks[key], description=" ".join(steps))

    def stage_ended(self, model: str, target: str, stage: Stage, took: float) -> None:
        """See `Listener`."""
        with self._lock:
            self._at.pop((model, target), None)
            done = self._done.setdefault((model, target), set())
            if stage in done:  # a worker's run is polled repeatedly
                return
            done.add(stage)
        self._print_line((model, target), f"{stage} {seconds(took)}")

    def model_ended(self, result: ModelResult) -> None:
        """See `Listener`."""
        super().model_ended(result)
        key = (result.model, result.target)
        style = _STYLES[result.outcome]
        text = f"[{style}]{result.outcome}[/{style}]"
        if result.stage is not None:
            text += f" in {result.stage}"
        elif result.proof is ReleaseState.EMULATED:
            text += f", {escape(result.remark)}"
        self._at.pop(key, None)
        if not self._live:
            self._print_line(key, Text.from_markup(text).plain)
            return
        with self._lock:
            if key not in self._tasks:  # a worker converted it without a report of a stage
                self._tasks[key] = self._progress.add_task("", label=" ".join(key))
        self._progress.update(self._tasks[key], description=text, total=1, completed=1)

    def _beat(self) -> None:
        while not self._ended.wait(self._beat_seconds):
            for key, (stage, began, text) in list(self._at.items()):
                if (took := time.monotonic() - began) >= self._beat_seconds:
                    self._print_line(key, f"{stage} for {seconds(took)} so far{text}")

    def _print_line(self, key: tuple[str, str], text: str) -> None:
        if not self._live:
            self._console.out(f"{key[0]} for {key[1]}: {text}")

    def __enter__(self) -> Self:
        self._progress.start()
        self._beating.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._progress.stop()


def announce_weights(planned: Sequence[PlannedModel], seed: int | None) -> None:
    """Print the models that get random weights, so that this never happens silently."""
    if seed is None:
        return
    for text, used in (
        (f"Random weights, seed {seed}, instead of fetched ones:", seed),
        ("Weights of the entry's own, kept:", None),
    ):
        if models := dict.fromkeys(one.model for one in planned if one.seed == used):
            remark(f"{text} {', '.join(models)}")


def shown_results(run: RunResult) -> Iterator[RenderableType]:
    """Yield the table, then all reasons in full, then the locations of results."""
    columns = ["model", "target", "outcome", *_FIGURES]
    rows = [_cells(row) for row in run.results]
    if results().width < NARROW:  # the report has the other columns
        few = [
            n
            for n, column in enumerate(columns)
            if column not in {"max abs error", "against eager"}
        ]
        columns, rows = [columns[n] for n in few], [tuple(row[n] for n in few) for row in rows]
    yield table(*columns, rows=rows, right=_FIGURES)
    for row in run.results:
        if row.reason is not None:
            where = f"{row.model} for {row.target}, {row.stage}: "
            yield Text(where, style="red").append(printable(row.reason), style="default")
        elif row.remark:
            yield f"{row.model} for {row.target}: {row.remark}"
        if row.diagnosis is not None and row.diagnosis.divergence is not None:
            yield f"rerun   {row.diagnosis.divergence.command}"
    yield f"{run.summary} in {seconds(run.seconds)}"
    yield f"store   {run.store}"
    if run.report is not None:
        yield f"report  {run.report}"
    yield f"home    {home()}"


def _cells(row: ModelResult) -> tuple[Text | str, ...]:
    return (
        row.model,
        row.target,
        Text(row.ended, style=_STYLES[row.outcome] if row.retracted is None else "red"),
        figure(row.worst_absolute, error),
        figure(row.worst_snr_db, decibels),
        figure(row.latency_ms, milliseconds),
        "" if row.latency_ms is None else speed(row.ratio).removesuffix(" than eager"),
        figure(row.bytes, size),
        seconds(row.seconds),
    )
