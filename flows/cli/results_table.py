"""The table at the end of `zoo convert`, and what is said about weights at its start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from flows.cli.output import figure, messages, results, table
from flows.outcome.results import Outcome
from menagerie.figures import decibels, error, milliseconds, seconds, size, speed
from menagerie.format.bundle_manifest import ReleaseState
from menagerie.paths import home

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flows.outcome.results import ModelResult, RunResult
    from flows.plan import PlannedModel

__all__ = ["announce_weights", "print_results"]

_STYLES = {
    Outcome.PUBLISHED: "green",
    Outcome.PROVEN: "green",
    Outcome.SKIPPED: "dim",
    Outcome.FAILED: "red",
    Outcome.CRASHED: "red",
    Outcome.TIMED_OUT: "red",
}


def announce_weights(planned: Sequence[PlannedModel], seed: int | None, *, quiet: bool) -> None:
    """Say which models get random weights: it is never done silently.

    With `quiet` it is said on standard error, since standard output belongs to JSON.
    """
    if seed is None:
        return
    console = messages() if quiet else results()
    for text, models in (
        (f"Random weights, seed {seed}, instead of fetched ones:", _names(planned, seed)),
        ("Weights of their own, not replaced:", _names(planned, None)),
    ):
        if models:
            console.print(f"{text} {', '.join(models)}")


def _names(planned: Sequence[PlannedModel], seed: int | None) -> list[str]:
    return list(dict.fromkeys(one.model for one in planned if one.seed == seed))


def print_results(run: RunResult) -> None:
    """The rows, then every reason in full, then where things lie."""
    columns = ("max abs error", "SNR", "latency", "against eager", "size", "time")
    shown = table("model", "target", "outcome", *columns, right=columns)
    for row in run.results:
        shown.add_row(*_cells(row))
    console = results()
    console.print(shown)
    for row in run.results:
        if row.reason is not None:
            where = f"{row.model} for {row.target}, {row.stage}: "
            console.print(Text(where, style="red").append(row.reason, style="default"))
        elif row.remark:
            console.print(f"{row.model} for {row.target}: {row.remark}", markup=False)
        if row.diagnosis is not None and row.diagnosis.divergence is not None:
            console.print(f"rerun   {row.diagnosis.divergence.command}", markup=False)
    console.print(f"{run.summary} in {seconds(run.seconds)}")
    console.print(f"store   {run.store}", markup=False)
    if run.report is not None:
        console.print(f"report  {run.report}", markup=False)
    console.print(f"home    {home()}", markup=False)


def _cells(row: ModelResult) -> tuple[Text | str, ...]:
    outcome = row.outcome.value
    if row.proof is ReleaseState.EMULATED:
        outcome += ", emulated"
    return (
        row.model,
        row.target,
        Text(outcome, style=_STYLES[row.outcome]),
        figure(row.worst_absolute, error),
        figure(row.worst_snr_db, decibels),
        figure(row.latency_ms, milliseconds),
        "" if row.latency_ms is None else speed(row.ratio),
        figure(row.bytes, size),
        seconds(row.seconds),
    )
