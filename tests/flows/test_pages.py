"""Every run of a model has a page, and the page behind its link says the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from prefect.client.orchestration import get_client
from toy_zoo import measured, toy_bundle, toy_job, toy_judgement, toy_records

from flows.cli import invoke
from flows.pages import Ended, ProgressBar, leave_pages
from flows.reports import conversion_log, link_report, report_failure
from flows.results import ModelResult, Outcome, results_markdown
from flows.this_run import our_flow
from tasks.prove import prove
from tasks.publish import publish_bundle
from transforms.stages import Stage
from zoo.errors import ExportError, MenagerieError
from zoo.report.page import failure_markdown
from zoo.store import open_store
from zoo.store.base import LocalObjects

if TYPE_CHECKING:
    from tasks.job import Job

KEY = "a" * 64


@pytest.fixture
def linking(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A store that gives addresses like a bucket: those of its files."""

    def link(objects: LocalObjects, key: str, *_: object) -> str:
        return (tmp_path / "store" / key).as_uri()

    def opened(name: str, prefix: str) -> LocalObjects:
        return LocalObjects(tmp_path / "store", f"s3://{name}/{prefix}")

    monkeypatch.setattr(LocalObjects, "link", link)
    monkeypatch.setattr("zoo.store._bucket", opened)
    return "s3://models/zoo"


def left(ended: Ended, store: str) -> tuple[ModelResult, str]:
    """The row, and the page that its run has."""
    model = ended.row.model

    @our_flow("leave")
    def leave() -> ModelResult:
        return leave_pages(ended, open_store(store))

    row = leave()
    with get_client(sync_client=True) as client:
        pages = {artifact.key: artifact for artifact in client.read_latest_artifacts()}
    assert row.page is None or row.page in pages[f"{model}-cpu-report"].data
    return row, str(pages[f"{model}-cpu"].data)


def behind(address: str | None) -> str:
    """The text of the page at an address."""
    assert address is not None
    html = Path(address.removeprefix("file://")).read_text()
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))


def proven(job: Job, latency: float) -> Ended:
    """How a conversion of a toy ended that ran so many milliseconds."""
    toy_bundle(job)
    records = toy_records()
    lowered = records.lowered.model_copy(
        update={"artifact_latency": (("main", measured(latency)),)}
    )
    records = records.model_copy(update={"lowered": lowered})
    report = prove(job, records, judge=lambda *_, **__: toy_judgement())
    kept = publish_bundle(job).kept
    outcome = Outcome.PUBLISHED if kept is None else Outcome.PROVEN
    row = ModelResult(
        model=job.model, target="cpu", outcome=outcome, build_key=job.build_key, kept=kept
    )
    return Ended(row.with_report(report, job.reports), report)


@pytest.mark.usefixtures("prefect_server")
def test_a_build_proven_anew_shows_one_latency(linking: str, tmp_path: Path) -> None:
    """That of this run, on its page and behind its link; the kept release is named."""
    first = toy_job(tmp_path / "first", model="fox", store=linking)
    row, page = left(proven(first, 7.25), linking)
    assert "7.25 ms" in page
    assert "7.25 ms" in behind(row.page)
    again = toy_job(tmp_path / "again", model="fox", store=linking)
    row, page = left(proven(again, 9.75), linking)
    assert "9.75 ms" in page
    assert "9.75 ms" in behind(row.page)
    assert "7.25 ms" not in page + behind(row.page)
    assert "Proven anew" in page
    assert str(row.kept).partition("T")[0].replace("-", "") in re.sub(r"[-\\]", "", page)


@pytest.mark.usefixtures("prefect_server")
def test_a_candidates_page_says_how_it_is_got_later(
    linking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the command, when it is promoted; a zip file is never linked there."""
    with monkeypatch.context() as worker:
        worker.setenv("MENAGERIE_ROLE", "worker")
        ended = proven(toy_job(tmp_path / "first", model="hen", store=linking), 7.25)
    _, page = left(ended, linking)
    assert "It waits for its promotion" in page
    assert "of what is promoted later no zip file is linked here" in page


@pytest.mark.usefixtures("prefect_server")
@pytest.mark.parametrize("stage", [Stage.PULL, Stage.EXPORT, Stage.LOWER])
def test_every_failure_has_a_page(linking: str, stage: Stage, own_home: Path) -> None:
    """Stage, node, reason, what to do and the log's end; on the run, here, and behind the link."""
    log = conversion_log("gnu", "cpu", KEY)
    log.parent.mkdir(parents=True)
    log.write_text("first line\n" + "noise\n" * 500 + "Traceback: <b>it | broke</b>\x1b[0m\n")
    error = ExportError("gnu, layer1.conv in net.py:7", "sizes depend on values", "Pad them")
    row = ModelResult(
        model="gnu",
        target="cpu",
        outcome=Outcome.FAILED,
        stage=stage,
        reason=str(error),
        build_key=KEY,
    )
    row, page = left(Ended(row, error=error), linking)
    shown = [stage.value, "layer1.conv in net.py:7", "sizes depend on values", "Pad them"]
    for text in (page.replace("\\", ""), behind(row.page)):
        assert [each for each in shown if each not in text] == []
        assert "broke" in text
        assert "first line" not in text
        assert "\x1b" not in text
    assert row.report == str(own_home / "reports" / "gnu" / "cpu" / "failure.html")
    assert "<b>it" not in Path(row.report).read_text()
    assert f"[failed]({row.page})" in results_markdown([row])


def test_a_failure_is_what_zoo_report_shows_until_the_next_verdict(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, own_home: Path
) -> None:
    """The page of the last conversion, whatever became of it."""
    row = ModelResult(model="toy", target="cpu", outcome=Outcome.CRASHED, stage="flow", reason="x")
    row, _ = report_failure(row)
    folder = own_home / "reports" / "toy" / "cpu"
    assert invoke(["report", "toy"]) == 0
    assert capfd.readouterr().out.strip() == str(folder / "failure.html")
    assert invoke(["report", "toy", "--json"]) == 1
    assert "has no report" in capfd.readouterr().err
    proven(toy_job(tmp_path / "toy", store=str(tmp_path / "s"), reports=folder), 2.0)
    assert invoke(["report", "toy"]) == 0
    assert capfd.readouterr().out.strip() == str(folder / "report.html")
    assert (
        link_report(row, open_store(str(tmp_path / "s"))).page is None
    )  # a folder has no addresses


def test_what_never_began_has_no_log_of_an_earlier_run() -> None:
    """What that build's process wrote yesterday says nothing of a store that is away today."""
    log = conversion_log("toy", "cpu", KEY)
    log.parent.mkdir(parents=True)
    log.write_text("yesterday")
    row = ModelResult(
        model="toy", target="cpu", outcome=Outcome.FAILED, stage="plan", reason="x", build_key=KEY
    )
    assert report_failure(row, MenagerieError("s3://zoo", "does not answer"))[1].log == ""
    begun = row.model_copy(update={"stage": Stage.PULL})
    assert "yesterday" in report_failure(begun, MenagerieError("toy", "x"))[1].log


def test_no_text_of_a_log_becomes_markup() -> None:
    """Each line of it is indented, whatever it is."""
    row = ModelResult(model="toy", target="cpu", outcome=Outcome.FAILED, stage="pull", reason="x")
    report = report_failure(row)[1].model_copy(update={"log": "# no title\n- no | item"})
    lines = failure_markdown(report).splitlines()
    assert "    # no title" in lines
    assert "    - no | item" in lines


@pytest.mark.usefixtures("prefect_server")
def test_a_bar_names_the_stage_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that begins is shown at once, and nothing in a step is Markdown."""
    monkeypatch.setattr("flows.pages._LONG_SECONDS", 0.0)
    key = f"bar-{uuid4().hex}"

    @our_flow("move")
    def move() -> None:
        bar = ProgressBar(key, 6)
        bar.show(4.9, "validate: [case 9](x)")
        bar.show(4.95, "validate: case 10")
        bar.show(5, "publish")

    move()
    with get_client(sync_client=True) as client:
        [bar] = [a for a in client.read_latest_artifacts() if a.key == key]
    assert (bar.description, bar.data) == ("publish: 5 of 6 stages done", 83)
