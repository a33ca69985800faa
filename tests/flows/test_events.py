"""What ran can be read afterwards: from the run's log, and from a file."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
from prefect.logging import get_run_logger
from prefect.logging.handlers import APILogWorker

from flows.pages import Event, EventKind, model_event, record
from flows.results import ModelResult, Outcome
from tasks.retries import run_as_task
from zoo.errors import UsageError

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


def test_a_log_has_sentences(own_home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a person reads is no JSON."""
    with caplog.at_level("INFO"):
        for event in (stage("pull", 1.5), failed("ant")):
            record(event)
    said = ["pull: done in 1.5 s", "ant for cpu: failed after 3 s in lower (no)"]
    assert [line.getMessage() for line in caplog.records] == said


@pytest.mark.usefixtures("prefect_server")
def test_a_log_names_no_state_of_prefects_engine() -> None:
    """Nor a traceback of an error of ours: a run's page shows how it ended, its lines say why."""

    def fails() -> None:
        raise UsageError("the toy", "is broken", "Mend it")

    @flow
    def quiet() -> None:
        run_as_task("nothing", lambda: get_run_logger().info("one line"), retried=False)
        with suppress(UsageError):
            run_as_task("broken", fails, retried=False)

    state = quiet(return_state=True)
    APILogWorker.drain_all()
    wanted = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[state.state_details.flow_run_id]))
    with get_client(sync_client=True) as client:
        lines = [log.message for log in client.read_logs(log_filter=wanted)]
    assert {"one line", "the toy: is broken. Mend it"} <= set(lines)
    assert not any("Finished in state" in line or "Traceback" in line for line in lines)


def test_a_disk_that_is_full_costs_only_the_line(
    own_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No model fails because its history cannot be written."""
    own_home.mkdir(exist_ok=True)
    (own_home / "logs").write_text("a file where a folder must be")
    record(failed("ant"))
    assert "could not be written" in caplog.text
