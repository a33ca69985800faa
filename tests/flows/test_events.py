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

from flows.pages import record
from flows.results import ModelResult, Outcome
from tasks.retries import run_as_task
from zoo.errors import UsageError
from zoo.records import StageTime

if TYPE_CHECKING:
    from pathlib import Path


ENDED = ModelResult(
    model="ant",
    target="cpu",
    outcome=Outcome.FAILED,
    stage="lower",
    reason="no",
    seconds=3,
    build_key="a" * 64,
    stages=(StageTime(stage="pull", seconds=1.5),),
    page="https://store.example/page?signature",
)


def test_the_end_of_a_model_is_a_line(own_home: Path) -> None:
    """With its names, stages, time and end, and no address that opens what is not public."""
    record(ENDED)
    record(ENDED.model_copy(update={"model": "bee"}))
    [file] = (own_home / "logs").glob("events-*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    expected = {
        "model": "ant",
        "target": "cpu",
        "build_key": "a" * 64,
        "stage": "lower",
        "seconds": 3.0,
        "stages": [{"stage": "pull", "seconds": 1.5}],
        "outcome": "failed",
        "reason": "no",
    }
    assert {name: lines[0].get(name) for name in expected} == expected
    assert lines[0]["time"].endswith("+00:00")
    assert "signature" not in file.read_text()
    assert lines[1]["model"] == "bee"


def test_a_log_has_sentences(own_home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a person reads is no JSON."""
    well = ModelResult(model="bee", target="cpu", outcome=Outcome.PUBLISHED, seconds=1.5)
    with caplog.at_level("INFO"):
        for row in (well, ENDED):
            record(row)
    said = ["bee for cpu: published in 1.5 s", "ant for cpu: failed after 3 s in lower (no)"]
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
    record(ENDED)
    assert "could not be written down" in caplog.text
