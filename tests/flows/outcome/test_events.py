"""What ran can be read afterwards: from the run's log, and from a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from flows.connection import EventKind
from flows.outcome.events import Event, model_event, record
from flows.outcome.results import ModelResult, Outcome

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def stage(name: str, seconds: float) -> Event:
    """A stage of ant that is done."""
    return Event(
        event=EventKind.STAGE,
        model="ant",
        target="cpu",
        build_key="a" * 64,
        stage=name,
        outcome="done",
        seconds=seconds,
    )


def failed(model: str) -> Event:
    """A conversion that failed."""
    return model_event(
        ModelResult(
            model=model,
            target="cpu",
            outcome=Outcome.FAILED,
            stage="lower",
            reason="no",
            seconds=3,
        )
    )


def test_an_event_is_a_line(own_home: Path) -> None:
    """With its names, stage, time and end."""
    for event in (stage("pull", 1.5), failed("ant")):
        record(event)
    [file] = (own_home / "logs").glob("events-*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert (
        lines[0].items()
        >= {
            "event": "stage",
            "model": "ant",
            "target": "cpu",
            "build_key": "a" * 64,
            "stage": "pull",
            "seconds": 1.5,
            "outcome": "done",
        }.items()
    )
    assert lines[1].items() >= {"event": "model", "outcome": "failed", "reason": "no"}.items()


def test_a_disk_that_is_full_costs_only_the_line(
    own_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No model fails because its history cannot be written."""
    own_home.mkdir(exist_ok=True)
    (own_home / "logs").write_text("a file where a folder must be")
    record(failed("ant"))
    assert "could not be written" in caplog.text
