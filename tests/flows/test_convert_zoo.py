"""The flows judge every model, whatever happens to it, and the table is always complete."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import signal
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prefect.client.schemas.objects import StateType
from toy_zoo import ToyModel, toy_judgement

import flows.pages
import tasks.retries
import zoo.store
from flows.cli import invoke
from flows.cli.convert import _run_flow
from flows.cli.output import answer
from flows.cli.progress import shown_results
from flows.convert import convert_batch, convert_here, convert_model, convert_zoo
from flows.parameters import ConversionOptions
from flows.plan import plan
from flows.results import Listener, ModelResult, Outcome, RunResult
from flows.services import Services, use_services
from menagerie.format.bundle_manifest import MANIFEST, MODEL_SIGNATURE, SIGNATURE
from menagerie.validation.findings import Verdict
from tasks.failures import ProcessDied
from tasks.prove import prove
from tasks.publish import publish_bundle
from transforms.stages import Stage
from zoo.catalogue.site import update_catalogue
from zoo.errors import ExportError, SourceError, StoreUnreachable, UsageError
from zoo.store import open_store
from zoo.store.submissions import submission_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from menagerie.format.bundle_manifest import BundleManifest
    from menagerie.store.layout import Build
    from tasks.job import Job, PublishRecord, StageRecords
    from zoo.progress import StepDone
    from zoo.records import ConversionReport
    from zoo.store import Store

pytestmark = pytest.mark.usefixtures("prefect_server")

Faults = dict[str, dict[Stage, BaseException]]


class Notes(Listener):
    """A listener that records its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.stages: list[tuple[str, Stage]] = []
        self.steps: list[tuple[Stage, str]] = []
        self.ended: list[ModelResult] = []

    def stage_at(self, model: str, target: str, stage: Stage, step: StepDone | None = None) -> None:
        """Its steps are noted."""
        if step is not None:
            self.steps.append((stage, step.text))

    def stage_ended(self, model: str, target: str, stage: Stage, seconds: float) -> None:
        """Noted."""
        self.stages.append((model, stage))

    def model_ended(self, result: ModelResult) -> None:
        """Noted."""
        super().model_ended(result)
        self.ended.append(result)


def toy_services(
    faults: Mapping[str, Mapping[Stage, BaseException]] | None = None,
    *,
    diverging: frozenset[str] = frozenset(),
) -> Services:
    """Toys in place of compilers; the reports, the seal and the store are real."""
    faults = faults or {}

    def judge_and_prove(job: Job, records: StageRecords) -> ConversionReport:
        judgement = toy_judgement(passed=job.model not in diverging)
        return prove(job, records, judge=lambda *_, **__: judgement)

    def publish(job: Job, _: StageRecords) -> PublishRecord:
        if fault := faults.get(job.model, {}).get(Stage.PUBLISH):
            raise fault
        return publish_bundle(job)

    return Services(
        hold=lambda job: ToyModel(job, faults.get(job.model)),
        instead={Stage.VALIDATE: judge_and_prove, Stage.PUBLISH: publish},
        listener=Notes(),
    )


def one(place: Services, model: str, options: ConversionOptions) -> ModelResult:
    """The row of a run of convert_model, whose state must say whether it succeeded."""
    place.listener.rows.clear()
    with use_services(place):
        state = convert_model(model, "cpu", options, return_state=True)
    [result] = place.listener.rows.values()
    assert state.is_completed() == result.succeeded
    return result


def many(place: Services, options: ConversionOptions, **arguments: Any) -> list[ModelResult]:
    """The rows of a run of convert_zoo by name; its state must say whether all succeeded."""
    place.listener.rows.clear()
    with use_services(place):
        state = convert_zoo(options=options, **arguments, return_state=True)
    rows = sorted(place.listener.rows.values(), key=lambda row: row.model)
    assert state.is_completed() == all(row.succeeded for row in rows)
    return rows


@pytest.fixture
def options(tmp_path: Path, manifest: Path) -> ConversionOptions:
    """Random weights, the toys' manifest, and a store of this test's."""
    return ConversionOptions(
        random_weights=0, manifest=str(manifest), store=str(tmp_path / "store")
    )


def test_one_model_goes_all_the_way(options: ConversionOptions, own_home: Path) -> None:
    """Published, with its figures, stages, report; nothing is left in the working folder."""
    result = one(toy_services(), "ant", options)
    assert result.outcome is Outcome.PUBLISHED
    assert result.worst_absolute == 3e-6
    assert (result.latency_ms, result.eager_ms) == (2.0, 4.0)
    assert [s.stage for s in result.stages] == [s.value for s in Stage if s is not Stage.LOCATE]
    release = open_store(options.store_url).find("ant", "cpu")
    assert release.build_key == result.build_key
    assert release.manifest.random_weights == 0
    assert result.report == str(own_home / "reports" / "ant" / "cpu" / "report.html")
    assert list((own_home / "work").iterdir()) == []


def test_steps_inside_a_stage_are_reported(options: ConversionOptions) -> None:
    """As a line of the run's log, and to the listener that shows progress."""
    from prefect.client.orchestration import get_client
    from prefect.logging.handlers import APILogWorker

    services = toy_services()
    one(services, "ant", options)
    step = "program main: exported, 3 golden cases"
    assert services.listener.steps == [(Stage.EXPORT, step)]  # type: ignore[attr-defined]
    APILogWorker.drain_all()
    with get_client(sync_client=True) as client:
        assert f"export: {step}" in [log.message for log in client.read_logs()]


def test_a_long_conversion_has_a_bar(
    options: ConversionOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It moves with the stages, to its end; a short one has none."""
    from prefect.client.orchestration import get_client

    def bar() -> list[Any]:
        with get_client(sync_client=True) as client:
            return [a for a in client.read_latest_artifacts() if a.key == "bee-cpu-progress"]

    one(toy_services(), "bee", options)
    assert bar() == []
    monkeypatch.setattr(flows.pages, "_LONG_SECONDS", 0.0)
    one(toy_services(), "bee", options.model_copy(update={"force": True}))
    [shown] = bar()
    assert (shown.type, shown.data) == ("progress", 100.0)
    assert shown.description == "published: 6 of 6 stages done"


def test_every_model_gets_its_row(options: ConversionOptions) -> None:
    """A failure at any stage, a crash and a success in one run: four rows, in order."""
    faults: Faults = {
        "ant": {Stage.EXPORT: ExportError("program main", "cannot be traced", "Simplify it")},
        "bee": {Stage.LOWER: ProcessDied("bee", f"its process died ({signal.SIGSEGV.name})")},
    }
    place = toy_services(faults)
    ant, bee, cat = many(place, options, models=["*"])
    assert (ant.outcome, ant.stage) == (Outcome.FAILED, "export")
    assert ant.reason == "program main: cannot be traced. Simplify it"
    assert (bee.outcome, bee.stage) == (Outcome.CRASHED, "lower")
    assert bee.reason == "bee: its process died (SIGSEGV)"
    assert (cat.outcome, cat.stage) == (Outcome.PUBLISHED, None)
    assert isinstance(place.listener, Notes)
    assert place.listener.ended == [ant, bee, cat]


def test_a_second_run_skips_what_is_there(options: ConversionOptions) -> None:
    """Under the same build key nothing is done; with force, all is done again."""
    first = many(toy_services(), options)
    second = many(toy_services(), options)
    assert [r.outcome for r in first] == [Outcome.PUBLISHED] * 2
    assert [r.outcome for r in second] == [Outcome.SKIPPED] * 2
    assert [r.worst_absolute for r in second] == [3e-6] * 2  # of the report kept here
    forced = one(toy_services(), "ant", options.model_copy(update={"force": True}))
    assert forced.outcome is Outcome.PROVEN  # what it made is not what the store has
    assert "the store keeps its release of 20" in forced.remark
    assert forced.stages[-1].stage == "publish"


def test_a_diverging_model_is_not_published(options: ConversionOptions) -> None:
    """Its row has the figures and the report; the store stays without it."""
    ant, bee = many(toy_services(diverging=frozenset({"bee"})), options)
    assert ant.outcome is Outcome.PUBLISHED
    assert (bee.outcome, bee.stage, bee.worst_absolute) == (Outcome.FAILED, "validate", 0.5)
    assert "off by 0.5" in (bee.reason or "")
    assert bee.report is not None
    assert [r.model for r in open_store(options.store_url).releases()] == ["ant"]


def test_a_model_too_slow_to_be_proven_timed_out(options: ConversionOptions) -> None:
    """The verdict of a validation that was ended for its time is the row's outcome."""

    def too_slow(job: Job, records: StageRecords) -> ConversionReport:
        update = {"verdict": Verdict.TIMED_OUT, "detail": "stopped after 60 s"}
        judged = replace(toy_judgement(passed=False), **update)
        return prove(job, records, judge=lambda *_, **__: judged)

    place = dataclasses.replace(toy_services(), instead={Stage.VALIDATE: too_slow})
    row = one(place, "ant", options)
    assert (row.outcome, row.stage) == (Outcome.TIMED_OUT, "validate")
    assert "stopped after 60 s" in (row.reason or "")


def test_a_diverging_model_names_the_first_wrong_node(options: ConversionOptions) -> None:
    """In the row's reason, as a record in the row, and in the report with it."""
    place = toy_services(diverging=frozenset({"ant"}))
    ant = one(place, "ant", options)
    assert ant.diagnosis is not None
    assert ant.diagnosis.divergence is not None
    assert ant.diagnosis.divergence.node == "conv2d_3"
    assert "off by 0.5" in (ant.reason or "")
    assert "conv2d_3" in (ant.reason or "")
    assert ant.report is not None
    assert "conv2d_3" in Path(ant.report).read_text()
    assert Stage.LOCATE in [stage for _, stage in place.listener.stages]  # type: ignore[attr-defined]
    assert ant.stage == "validate"


def test_no_search_where_none_is_wanted(options: ConversionOptions) -> None:
    """With no minutes for it the verdict is all there is."""
    place = toy_services(diverging=frozenset({"ant"}))
    ant = one(place, "ant", options.model_copy(update={"search_minutes": 0}))
    assert (ant.outcome, ant.diagnosis) == (Outcome.FAILED, None)
    assert "off by 0.5" in (ant.reason or "")


def test_a_search_that_dies_leaves_the_verdict(options: ConversionOptions) -> None:
    """The row is that of the failed validation, with a word on the search."""
    faults: Faults = {"ant": {Stage.LOCATE: ProcessDied("ant", "its process died")}}
    ant = one(toy_services(faults, diverging=frozenset({"ant"})), "ant", options)
    assert (ant.outcome, ant.stage, ant.worst_absolute) == (Outcome.FAILED, "validate", 0.5)
    assert "its process died" in (ant.reason or "")


def test_models_can_be_converted_side_by_side(options: ConversionOptions) -> None:
    """With jobs, the rows are the same."""
    faults: Faults = {"bee": {Stage.PULL: SourceError("bee", "no such builder")}}
    rows = many(toy_services(faults), options, models=["*"], jobs=3)
    outcomes = [(r.model, r.outcome) for r in rows]
    published, failed = Outcome.PUBLISHED, Outcome.FAILED
    assert outcomes == [("ant", published), ("bee", failed), ("cat", published)]


def test_an_error_of_our_own_code_is_a_crash_of_that_model(options: ConversionOptions) -> None:
    """An exception outside the tree is a row with its class, not the end of the run."""
    faults: Faults = {"ant": {Stage.TRANSFORM: ZeroDivisionError("division by zero")}}
    ant, bee = many(toy_services(faults), options)
    assert (ant.outcome, ant.stage) == (Outcome.CRASHED, "transform")
    assert ant.reason == "ant: ZeroDivisionError: division by zero"
    assert bee.outcome is Outcome.PUBLISHED


def test_an_unknown_model_is_refused_before_anything_runs(options: ConversionOptions) -> None:
    """The whole run is misuse; the nearest name is suggested."""
    with use_services(toy_services()), pytest.raises(UsageError, match="ant"):
        convert_zoo(models=["bee", "annt"], options=options)


def test_the_run_has_tables_tags_and_names(options: ConversionOptions) -> None:
    """In Prefect's UI: a task a model, named like its stages, with its report; a table."""
    from prefect.client.orchestration import get_client
    from prefect.events.worker import EventsWorker

    many(toy_services(), options)
    EventsWorker.drain_all(timeout=30)
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs()
        artifacts = {a.key: a for a in client.read_latest_artifacts()}
        ends = Counter((task.name, task.state_type) for task in client.read_task_runs())
    assert ends["bee for cpu", StateType.COMPLETED] >= 1  # of other tests, too
    assert ends["lower: ant for cpu", StateType.COMPLETED] >= 1
    name, tags = "convert the default models", {"ant", "bee", "cpu", "command line"}
    assert (name, tags) in [(run.name, set(run.tags)) for run in runs]
    assert "| bee | cpu | published |" in artifacts["convert-zoo"].data
    assert "ant" in artifacts["ant-cpu"].data


def test_what_others_converted_in_the_meantime_is_not_done_again(
    options: ConversionOptions,
) -> None:
    """A batch is planned at its start: before a model's turn the store is asked once more."""
    [planned] = plan(["ant"], ["cpu"], options)
    assert planned.stored is None
    one(toy_services(), "ant", options)
    late = dataclasses.replace(toy_services(), planned=[planned])
    assert many(late, options)[0].outcome is Outcome.SKIPPED
    forced = options.model_copy(update={"force": True})
    assert many(late, forced)[0].kept is not None


@pytest.mark.parametrize("flow", [convert_model, convert_batch])
def test_a_store_that_was_away_for_a_moment_is_asked_again(
    flow: Any, options: ConversionOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planning on a worker tolerates it, as publishing does."""
    errors = [StoreUnreachable("s3://zoo", "no answer")]

    def asked(*_: object) -> dict[Build, BundleManifest]:
        if errors:
            raise errors.pop()
        return {}

    monkeypatch.setattr(tasks.retries, "RETRY_SECONDS", [0.0])
    monkeypatch.setattr(zoo.store.Store, "held", asked)
    models = "ant" if flow is convert_model else ["ant"]
    with use_services(toy_services()):
        state = flow(models, "cpu", options, return_state=True)
    assert (state.is_completed(), errors) == (True, [])


def test_hours_that_are_over_leave_rows(options: ConversionOptions) -> None:
    """Also where there is no worker: what has not begun has timed out, and the table is whole."""
    planned = plan(["*"], ["cpu"], options)
    place = toy_services()
    with use_services(place):
        convert_here(planned, options, open_store(options.store_url), until=-math.inf)
    assert [row.outcome for row in place.listener.rows.values()] == [Outcome.TIMED_OUT] * 3


def test_publishing_is_tried_again_without_an_answer(options: ConversionOptions) -> None:
    """A store that was away for a moment costs a retry, not the model."""
    tries = []

    def flaky(job: Job, _: StageRecords) -> PublishRecord:
        tries.append(job.model)
        if len(tries) == 1:
            raise StoreUnreachable("s3://zoo", "no answer")
        return publish_bundle(job)

    toys = toy_services()
    place = dataclasses.replace(toys, instead={**toys.instead, Stage.PUBLISH: flaky})
    result = one(place, "ant", options)
    assert result.outcome is Outcome.PUBLISHED
    assert tries == ["ant", "ant"]


def test_a_stopped_run_leaves_no_work_behind(options: ConversionOptions, own_home: Path) -> None:
    """An interrupt in the middle of a stage passes through, and the working folder is gone."""
    faults: Faults = {"ant": {Stage.LOWER: KeyboardInterrupt()}}
    with use_services(toy_services(faults)), pytest.raises(KeyboardInterrupt):
        convert_zoo(options=options)
    assert list((own_home / "work").iterdir()) == []
    assert open_store(options.store_url).releases() == []


def test_nothing_of_a_run_is_pickled(options: ConversionOptions) -> None:
    """Rows of failed models live in the state; Prefect's storage gets no file of them."""
    from prefect.settings import PREFECT_LOCAL_STORAGE_PATH

    storage = PREFECT_LOCAL_STORAGE_PATH.value()
    before = set(storage.glob("*"))
    faults: Faults = {"ant": {Stage.EXPORT: ExportError("program main", "cannot be traced")}}
    many(toy_services(faults), options)
    assert set(storage.glob("*")) == before


def test_a_run_that_ends_without_a_row_says_why(
    options: ConversionOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is whole: an exception of Prefect's is a line in it."""

    def broken(**_: Any) -> None:
        raise ValueError("bad")

    monkeypatch.setattr("flows.convert.convert_zoo", broken)
    monkeypatch.setattr("flows.prefect_api.prefect_api", lambda *_: nullcontext())
    rows = _run_flow(plan(["ant"], ["cpu"], options), options, 1)
    assert rows["ant", "cpu"].outcome is Outcome.CRASHED
    assert rows["ant", "cpu"].reason == "Prefect: ValueError: bad"


def test_a_failed_model_is_one_failed_task(options: ConversionOptions) -> None:
    """Its task; the batch that it was in has done its work, and says how it went."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
    from prefect.events.worker import EventsWorker

    faults: Faults = {"bee": {Stage.EXPORT: ExportError("program main", "cannot be traced")}}
    with use_services(toy_services(faults)):
        state = convert_batch(["ant", "bee"], "cpu", options, return_state=True)
    assert (state.is_completed(), state.name) == (True, "With failures")
    assert state.message == "1 published, 1 failed"
    batch = state.state_details.flow_run_id
    assert batch is not None
    EventsWorker.drain_all(timeout=30)
    with get_client(sync_client=True) as client:
        wanted = FlowRunFilter(id=FlowRunFilterId(any_=[batch]))
        tasks = client.read_task_runs(flow_run_filter=wanted)
    failed = {task.name for task in tasks if task.state_type is StateType.FAILED}
    assert failed == {"bee for cpu", "export: bee for cpu"}


def test_submitted_models_need_no_shared_folder(
    options: ConversionOptions, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker on another machine has the store alone; the build is the one planned here."""
    [here] = plan(["ant"], ["cpu"], options)
    assert invoke(["submit", str(manifest), "--store", options.store]) == 0
    digest = submission_of(open_store(options.store).objects, ["ant"])
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path / "another machine"))
    shutil.rmtree(manifest)
    submitted = options.model_copy(update={"manifest": f"sha256:{digest}"})
    with use_services(toy_services()):
        state = convert_batch(["ant"], "cpu", submitted, return_state=True)
    assert state.name == "Completed"
    assert open_store(options.store).find("ant", "cpu").build_key == here.build_key


def test_a_submitted_model_is_shown_from_the_store(
    options: ConversionOptions, manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command has no folder of it, and gives none."""
    assert invoke(["submit", str(manifest), "--store", options.store]) == 0
    shutil.rmtree(manifest)
    capsys.readouterr()
    assert invoke(["show", "ant", "--store", options.store, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "ant"


def test_misuse_is_a_failed_run_with_one_line(
    options: ConversionOptions, caplog: pytest.LogCaptureFixture
) -> None:
    """A misspelt name is answered with what was wrong, and no traceback."""
    with use_services(toy_services()):
        state = convert_zoo(models=["annt"], options=options, return_state=True)
    assert state.is_failed()
    assert "annt" in (state.message or "")
    assert "Traceback" not in caplog.text


def test_a_size_is_that_of_the_download_everywhere(
    options: ConversionOptions, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Converted, found in the store, shown or pulled: what the files take, in the same words."""
    rows = [one(toy_services(), "ant", options) for _ in range(2)]
    assert [row.outcome for row in rows] == [Outcome.PUBLISHED, Outcome.SKIPPED]
    store = ["--store", options.store_url]
    capfd.readouterr()
    shown = []
    for row in rows:
        answer(None, *shown_results(RunResult(results=(row,), store="s", seconds=1)))
        shown.append(capfd.readouterr().out)
    assert invoke(["show", "ant", "--manifest", options.manifest, *store]) == 0
    shown.append(capfd.readouterr().out)
    assert invoke(["pull", "ant", *store, "-o", str(tmp_path / "pulled")]) == 0
    shown.append(capfd.readouterr().out)
    # What says and signs how large the others are.
    sealed = {MANIFEST, SIGNATURE, MODEL_SIGNATURE}
    files = [path for path in (tmp_path / "pulled").rglob("*") if path.is_file()]
    taken = sum(path.stat().st_size for path in files if path.name not in sealed)
    assert [row.bytes for row in rows] == [taken, taken]
    assert 1000 < taken < 1_000_000
    digits = 3 - len(str(taken // 1000))
    assert [f"{taken / 1000:.{digits}f} kB" in text for text in shown] == [True] * 4


def test_a_run_is_called_what_it_does(options: ConversionOptions) -> None:
    """So that the list of runs says it, scheduled or not."""
    from prefect.client.orchestration import get_client

    many(toy_services(), options, models=["ant", "bee"], targets=["cpu"])
    many(toy_services(), options)
    with get_client(sync_client=True) as client:
        names = {run.name for run in client.read_flow_runs()}
    assert {"convert ant and 1 more for cpu", "convert the default models"} <= names


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The models of each drawing of the catalogue, which is drawn."""
    calls: list[set[str]] = []

    def draw(store: Store, models: Iterable[str]) -> int:
        calls.append(set(models))
        return update_catalogue(store, calls[-1])

    monkeypatch.setattr("zoo.signing.promotion.update_catalogue", draw)
    return calls


def test_the_catalogue_is_drawn_once_for_all_models(
    options: ConversionOptions, tmp_path: Path, drawn: list[set[str]]
) -> None:
    """What failed is not in it; its time does not grow with the square of the models."""
    fault = {"cat": {Stage.EXPORT: ExportError("cat", "no")}}
    many(toy_services(fault), options, models=["*"])
    assert drawn == [{"ant", "bee"}]
    page = (tmp_path / "store" / "catalogue" / "index.html").read_text()
    assert [f"models/{name}.html" in page for name in ("ant", "bee", "cat")] == [True, True, False]


def test_a_model_converted_by_itself_draws_the_catalogue(
    options: ConversionOptions, drawn: list[set[str]]
) -> None:
    """As a run of `convert-model` from the UI's form does."""
    one(toy_services(), "ant", options)
    assert drawn == [{"ant"}]
