"""The table at the end of `zoo convert`, and what is said about weights at its start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from flows.cli.output import decibels, figure, messages, results, size, table
from flows.outcome.results import Outcome
from menagerie.format.bundle_manifest import ReleaseState
from menagerie.home import home

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flows.outcome.results import ModelResult, RunResult
    from flows.planning.plan import PlannedModel

__all__ = ["announce_weights", "print_results"]

_STYLES = {
    Outcome.PUBLISHED: "green",
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
    columns = ("worst |Δ|", "SNR", "latency", "eager", "size", "seconds")
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
    console.print(f"{run.summary} in {run.seconds:.1f} s")
    console.print(f"store   {run.store}", markup=False)
    if run.report is not None:
        console.print(f"report  {run.report}", markup=False)
    console.print(f"home    {home()}", markup=False)


def _cells(row: ModelResult) -> tuple[Text | str, ...]:
    ratio = ""
    if row.latency_ms and row.eager_ms:
        ratio = f" ({row.latency_ms / row.eager_ms:.2f}×)"  # noqa: RUF001
    outcome = row.outcome.value
    if row.proof is ReleaseState.EMULATED:
        outcome += ", emulated"
    return (
        row.model,
        row.target.value,
        Text(outcome, style=_STYLES[row.outcome]),
        figure(row.worst_absolute, "{:.1e}"),
        decibels(row.worst_snr_db),
        figure(row.latency_ms, "{:.2f} ms") + ratio,
        figure(row.eager_ms, "{:.2f} ms"),
        size(row.bytes),
        f"{row.seconds:.1f}",
    )
