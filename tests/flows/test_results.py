"""Rows, tables and figures for a person."""

from __future__ import annotations

import math
import re
from queue import SimpleQueue
from types import SimpleNamespace
from typing import TYPE_CHECKING

from rich.console import Console

from flows.cli.output import figure
from flows.cli.progress import LiveDisplay
from flows.results import ModelResult, Outcome, RunResult, results_markdown
from menagerie.figures import milliseconds
from menagerie.format.bundle_manifest import ReleaseState
from transforms.stages import Stage
from zoo.progress import StepDone

if TYPE_CHECKING:
    import pytest


def row(model: str, outcome: Outcome, **more: object) -> ModelResult:
    """A row of the table."""
    return ModelResult(model=model, target="cpu", outcome=outcome, **more)  # type: ignore[arg-type]


def test_a_run_succeeds_when_all_its_models_did() -> None:
    """Skipped is success, one failure is not; the summary counts."""
    good = (row("a", Outcome.PUBLISHED), row("b", Outcome.SKIPPED))
    assert RunResult(results=good, store="s").succeeded
    bad = RunResult(results=(*good, row("c", Outcome.FAILED), row("d", Outcome.CRASHED)), store="s")
    assert not bad.succeeded
    assert bad.summary == "1 published, 1 skipped, 1 failed, 1 crashed"
    assert RunResult(results=(), store="s").summary == "nothing to do"


def test_a_row_says_what_is_still_to_come() -> None:
    """A device is to confirm it, and the holder of the keys is to sign it."""
    emulated = {"proof": ReleaseState.EMULATED, "candidate": True}
    waits = row("a", Outcome.PUBLISHED, **emulated).remark
    assert "waiting for a device of cpu" in waits
    assert waits.endswith("a candidate: `zoo release promote a` signs it")
    assert row("a", Outcome.PUBLISHED).remark == ""


def test_a_row_travels_as_json_with_its_infinities() -> None:
    """Bit-equal outputs have an infinite ratio of signal to noise on the other machine too."""
    sent = row("a", Outcome.PUBLISHED, worst_snr_db=math.inf, worst_absolute=0.0)
    assert ModelResult.model_validate_json(sent.model_dump_json()).worst_snr_db == math.inf
    run = RunResult(results=(sent,), store="s")
    assert RunResult.model_validate_json(run.model_dump_json()) == run


def test_the_markdown_table_survives_any_reason() -> None:
    """Pipes, line breaks and markup in a reason stay inside their cell, as text."""
    reason = "x | y\nz \\| [a](b) <img src=c> `d"
    text = results_markdown([row("a_b", Outcome.FAILED, stage="lower", reason=reason)])
    [line] = text.splitlines()[2:]
    assert line.startswith(r"| a\_b | cpu | failed |")
    assert line.endswith(r"| lower\: x \| y z \\\| \[a\]\(b\) \<img src=c\> \`d |")
    assert line.count(" | ") == 7


def test_figures() -> None:
    """A missing figure is a dash, any other is as its writer has it."""
    assert figure(None, milliseconds) == "–"  # noqa: RUF001
    assert figure(1.25, milliseconds) == "1.25 ms"


def test_what_begins_and_takes_long_is_a_line_in_a_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    """Steps that are done are not, of which a proof has dozens."""
    with LiveDisplay() as display:
        for begins in (False, True):
            step = StepDone(text=f"fetching, {begins}", share=0.0, begins=begins)
            display.stage_at("m", "cpu", Stage.PULL, step)
    assert capfd.readouterr().err == "m for cpu: pull: fetching, True\n"


def test_a_stage_at_work_is_a_line_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pipe, with its last step: nobody takes a long one for hung."""
    lines = SimpleQueue[str]()
    console = Console(file=SimpleNamespace(write=lines.put, flush=lambda: None))  # type: ignore[arg-type]
    monkeypatch.setattr("flows.cli.progress.messages", lambda: console)
    with LiveDisplay(beat_seconds=1e-3) as display:
        display.stage_at("m", "metal", Stage.LOWER, StepDone(text="3 kernels", share=0.3))
        for _ in range(2):
            assert re.match("m for metal: lower for .* so far: 3 kernels", lines.get(timeout=60))
