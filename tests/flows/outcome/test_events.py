"""What ran can be read afterwards: from the run's log, from a file, by `zoo runs`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from flows.cli import invoke
from flows.outcome.events import Event, EventKind, model_event, record
from flows.outcome.history import local_history, server_history
from flows.outcome.results import ModelResult, Outcome
from flows.request.parameters import ConversionOptions

if TYPE_CHECKING:
    from pathlib import Path


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


def test_events_become_the_history(own_home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Newest first, each with its stages; half a line of a killed process harms nothing."""
    for event in (stage("pull", 1.5), stage("export", 0.25), failed("ant"), failed("bee")):
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
    with file.open("a") as log:
        log.write('{"event": "model", "mod')
    bee, ant = local_history(10, None)
    assert (bee.name, bee.state, bee.detail, bee.stages) == (
        "bee for cpu",
        "failed",
        "lower: no",
        {},
    )
    assert (ant.seconds, ant.stages) == (3.0, {"pull": 1.5, "export": 0.25})
    assert [r.name for r in local_history(1, None)] == ["bee for cpu"]
    assert [r.name for r in local_history(9, "ant")] == ["ant for cpu"]
    assert invoke(["runs", "--local", "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert [r["name"] for r in shown] == ["bee for cpu", "ant for cpu"]
    assert invoke(["runs", "--local"]) == 0
    assert "bee for cpu" in capfd.readouterr().out


def test_a_disk_that_is_full_costs_only_the_line(
    own_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No model fails because its history cannot be written."""
    own_home.mkdir(exist_ok=True)
    (own_home / "logs").write_text("a file where a folder must be")
    record(failed("ant"))
    assert "could not be written" in caplog.text


@pytest.mark.usefixtures("prefect_server")
def test_the_server_s_history(own_home: Path) -> None:
    """Our flows' runs with state and time."""
    from flows.collect_garbage import collect_garbage

    collect_garbage(dry_run=True, store=str(own_home / "store"))
    newest = server_history(1, None)[0]
    assert (newest.what, newest.state) == ("collect-garbage", "Completed")
    assert newest.began is not None
    assert server_history(5, "no_such_model") == []


@pytest.mark.usefixtures("prefect_server")
def test_the_history_of_a_model_has_its_runs_whoever_started_them(own_home: Path) -> None:
    """From the form, which sets no tags, as from a batch; not those of longer names."""
    from flows.convert_model import convert_model

    options = ConversionOptions(store=str(own_home / "store"), manifest=str(own_home / "none"))
    for model in ("hoopoe", "wide_hoopoe"):
        convert_model(model, "cpu", options, return_state=True)
    assert [r.name for r in server_history(5, "hoopoe")] == ["hoopoe for cpu"]
