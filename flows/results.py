"""Outcomes of a run's conversions: the rows of its table."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Self

from menagerie.figures import error, milliseconds, seconds, speed
from menagerie.format.bundle_manifest import ReleaseState
from transforms.stages import Stage
from zoo.base_models import Frozen
from zoo.progress import StepDone
from zoo.records import ConversionReport, Diagnosis, StageTime
from zoo.report.page import plain_text
from zoo.report.summary import summarise


class Outcome(StrEnum):
    """The outcome of one model's conversion."""

    PUBLISHED = "published"
    PROVEN = "proven anew"  # converted again; the store keeps its release
    SKIPPED = "skipped"  # the store already held it under the same build key
    FAILED = "failed"  # a stage failed with a reason
    CRASHED = "crashed"  # ended by something other than a judgement of the model
    TIMED_OUT = "timed out"  # exceeded its limit, or no worker was available


class Step(StrEnum):
    """A step, other than a stage of the conversion, at which a model can fail."""

    PLAN = "plan"  # before anything ran
    RUN = "run"  # the run took too long, or never began
    FLOW = "flow"  # the run ended without a row for the model


class ModelResult(Frozen):
    """One model for one target: its outcome and the figures that it reached."""

    model: str
    target: str
    outcome: Outcome
    stage: Stage | Step | None = None  # where it failed or crashed
    reason: str | None = None  # one line
    build_key: str | None = None
    random_weights: int | None = None
    worst_absolute: float | None = None  # largest |artifact - eager| of any output
    worst_snr_db: float | None = None  # smallest signal-to-noise ratio of any output
    latency_ms: float | None = None  # sum of the programs' medians
    eager_ms: float | None = None
    ratio: float | None = None  # artifact over eager, like for like; below 1 the artifact wins
    bytes: int | None = None  # of all files of the release
    seconds: float = 0.0
    diagnosis: Diagnosis | None = None  # of a validation that failed
    stages: tuple[StageTime, ...] = ()
    report: str | None = None  # path of its page on the converting machine
    page: str | None = None  # address of that page, valid for a week
    proof: ReleaseState | None = None  # of the release in the store
    kept: str | None = None  # when that release was made, if the conversion did not replace it
    candidate: bool = False  # whether that release waits for promotion
    retracted: str | None = None  # when and why it was retracted
    doubts: tuple[str, ...] = ()  # caveats on a passed proof

    def with_report(self, report: ConversionReport, folder: Path) -> Self:
        """Return this row with the figures of `report`, which is in `folder`."""
        summary = summarise(report)
        return self.model_copy(
            update={
                "worst_absolute": summary.worst_abs,
                "worst_snr_db": summary.worst_snr_db,
                "latency_ms": summary.artifact_ms,
                "eager_ms": summary.eager_ms,
                "ratio": summary.ratio,
                "diagnosis": report.diagnosis,
                "doubts": report.validation.doubts,
                "report": str(folder / "report.html"),
            }
        )

    @property
    def succeeded(self) -> bool:
        """Whether the requested release is now in the store."""
        return self.outcome in (Outcome.PUBLISHED, Outcome.PROVEN, Outcome.SKIPPED)

    @property
    def verdict(self) -> str:
        """The failure, for the state of its run or task."""
        return f"{self.outcome} in {self.stage}: {self.reason}"

    @property
    def ended(self) -> str:
        """The outcome, and why the release cannot be used, if so."""
        emulated = "emulated" if self.proof is ReleaseState.EMULATED else None
        unfit = emulated if self.retracted is None else "retracted"
        return self.outcome.value if unfit is None else f"{self.outcome}, {unfit}"

    @property
    def remark(self) -> str:
        """The failure or the next step, on one line; may be empty."""
        if self.stage is not None:
            return f"{self.stage}: {self.reason}"
        if self.retracted is not None:
            advice = "Fix its cause and convert it: that is another build"
            return f"was retracted on {self.retracted}. {advice}"
        notes = list(self.doubts)
        if self.kept is not None:
            notes.append(f"the store keeps its release of {self.kept}")
        elif self.proof is ReleaseState.EMULATED:
            notes.append(f"emulated, waiting for a device of {self.target} to confirm it")
        if self.candidate:
            notes.append(f"a candidate: `zoo release promote {self.model}` signs it")
        return ", ".join(notes)


class RunResult(Frozen):
    """All models of a run, one row each, whatever their outcomes."""

    results: tuple[ModelResult, ...]
    store: str
    report: str | None = None  # path of the index page of all reports
    seconds: float = 0.0

    @property
    def succeeded(self) -> bool:
        """Whether all requested work succeeded."""
        return all(result.succeeded for result in self.results)

    @property
    def summary(self) -> str:
        """One line, e.g. `3 published, 1 failed`."""
        counts = {o: sum(result.outcome is o for result in self.results) for o in Outcome}
        return ", ".join(f"{n} {o}" for o, n in counts.items() if n) or "nothing to do"


def results_markdown(results: Iterable[ModelResult]) -> str:
    """Return a table for the artifact on the parent flow run; outcomes link to the reports."""
    rows = [
        "| model | target | outcome | max abs error | latency | against eager | time | why |",
        "|---|---|---|---:|---:|---:|---:|---|",
    ]
    for r in results:
        cells = (
            *map(plain_text, (r.model, r.target)),
            plain_text(r.ended) if r.page is None else f"[{plain_text(r.ended)}]({r.page})",
            "" if r.worst_absolute is None else error(r.worst_absolute),
            "" if r.latency_ms is None else milliseconds(r.latency_ms),
            "" if r.latency_ms is None else speed(r.ratio),
            seconds(r.seconds),
            plain_text(r.remark),
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


class Listener:
    """A listener to every stage, in the thread of the model's conversion; it keeps the rows.

    Rows do not depend on Prefect's API, whose answer to a final state can get lost.
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], ModelResult] = {}  # by model and target

    def run_began(self, address: str) -> None:
        """Report that workers convert this run's models, and the run's address in Prefect's UI."""

    def stage_at(self, model: str, target: str, stage: Stage, step: StepDone | None = None) -> None:
        """Report that a stage of a model begins, or that one of its steps is done."""

    def stage_ended(self, model: str, target: str, stage: Stage, seconds: float) -> None:
        """Report that a stage succeeded, and its duration in seconds."""

    def model_ended(self, result: ModelResult) -> None:
        """Report that a model is finished, whatever its outcome."""
        self.rows[result.model, result.target] = result
