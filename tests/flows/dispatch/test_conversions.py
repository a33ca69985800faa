"""The parent judges every child itself, and always ends with a whole and true table."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from fake_server import FakeRuns
from prefect.client.schemas.objects import StateType
from toy_zoo import toy_bundle, toy_job, toy_judgement, toy_records

from flows.fan_out import Conversions
from flows.parameters import ConversionOptions, RunLimits
from flows.plan import PlannedModel, plan
from flows.results import Listener, ModelResult, Outcome
from tasks.prove import prove
from tasks.publish import publish_bundle

if TYPE_CHECKING:
    from pathlib import Path

ALONE = 1  # models in a run


def row(model: str, outcome: Outcome = Outcome.PUBLISHED, **more: Any) -> ModelResult:
    """A row that a child leaves."""
    return ModelResult(model=model, target="cpu", outcome=outcome, **more)


def well(models: list[str]) -> list[tuple[StateType, list[ModelResult]]]:
    """All models are published, one a look."""
    return [*((StateType.RUNNING, [row(model)]) for model in models), (StateType.COMPLETED, [])]


@pytest.fixture
def options(manifest: Path, tmp_path: Path) -> ConversionOptions:
    """The toys' manifest and a store of this test's."""
    return ConversionOptions(
        random_weights=0, manifest=str(manifest), store=str(tmp_path / "store")
    )


@pytest.fixture
def work(options: ConversionOptions) -> list[PlannedModel]:
    """The toys ant, bee and cat."""
    return plan(["*"], ["cpu"], options)


def dispatch(
    server: FakeRuns,
    work: list[PlannedModel],
    options: ConversionOptions,
    most: int = 8,
    *,
    attended: bool = False,
    **limits: int,
) -> dict[str, ModelResult]:
    """The rows by model after a run."""
    recorder, allowed = Listener(), RunLimits(**limits)
    conversions = Conversions(
        server,  # type: ignore[arg-type]
        server.deployments("convert-batch"),
        limits=allowed,
        options=options,
        recorder=recorder,
        attended=attended,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flows.fan_out.time", server)
        patch.setattr("flows.fan_out.BATCH_MODELS", most)
        conversions.convert(work, server.time + allowed.hours * 3600)
    return {model: each for (model, _), each in recorder.rows.items()}


def outcomes(rows: dict[str, ModelResult]) -> dict[str, str]:
    """How each ended."""
    return {model: str(each.outcome) for model, each in sorted(rows.items())}


def test_small_models_share_a_run(work: list[PlannedModel], options: ConversionOptions) -> None:
    """One run for three; every row comes from it."""
    server = FakeRuns(well)
    rows = dispatch(server, work, options)
    assert outcomes(rows) == {"ant": "published", "bee": "published", "cat": "published"}
    assert server.names == ["ant and 2 more for cpu"]
    server = FakeRuns(well)
    dispatch(server, work, options, ALONE)
    assert server.names == ["ant for cpu", "bee for cpu", "cat for cpu"]


def test_failures_are_rows_of_their_models(
    work: list[PlannedModel], options: ConversionOptions
) -> None:
    """What a child says of a model counts; a child that ends silently is a crash."""

    def script(models: list[str]) -> list[tuple[StateType, list[ModelResult]]]:
        return [
            (
                StateType.RUNNING,
                [row("ant"), row("bee", Outcome.FAILED, stage="lower", reason="no")],
            ),
            (StateType.FAILED, []),
        ]

    rows = dispatch(FakeRuns(script), work, options)
    assert outcomes(rows) == {"ant": "published", "bee": "failed", "cat": "crashed"}
    assert (rows["bee"].stage, rows["bee"].reason) == ("lower", "no")
    assert "its run ended Failed: so it is" in (rows["cat"].reason or "")


def test_the_last_row_of_a_run_that_just_ended_counts(
    work: list[PlannedModel], options: ConversionOptions
) -> None:
    """A child may leave a row and end between two looks, even between two questions of one."""
    said = [row(model, Outcome.FAILED, stage="lower", reason="no") for model in ("ant", "bee")]
    server = FakeRuns(lambda _: [(StateType.RUNNING, []), (StateType.FAILED, [*said, row("cat")])])
    rows = dispatch(server, work, options)
    assert outcomes(rows) == {"ant": "failed", "bee": "failed", "cat": "published"}


def test_a_pool_without_a_worker_is_not_waited_for(
    work: list[PlannedModel], options: ConversionOptions
) -> None:
    """After the set minutes the runs are cancelled, so that they do not wake up later."""
    server = FakeRuns(lambda _: [], workers=set())
    rows = dispatch(server, work, options, ALONE, minutes_without_worker=3)
    assert set(outcomes(rows).values()) == {"timed out"}
    assert "no worker in pool linux-cpu for 3 minutes: start one" in (rows["ant"].reason or "")
    assert server.cancelled == ["asked"] * 3
    assert 180 <= server.time < 200


def test_a_worker_that_comes_in_time_is_used(
    work: list[PlannedModel], options: ConversionOptions
) -> None:
    """Waiting in a pool that has a worker, busy as it may be, is no reason to give up."""

    def script(models: list[str]) -> list[tuple[StateType, list[ModelResult]]]:
        return [(StateType.SCHEDULED, [])] * 1000 + well(models)

    rows = dispatch(FakeRuns(script), work, options, minutes_without_worker=3)
    assert set(outcomes(rows).values()) == {"published"}


@pytest.mark.parametrize("obeys", [True, False])
def test_a_run_that_does_not_end_is_given_up(
    work: list[PlannedModel], options: ConversionOptions, *, obeys: bool
) -> None:
    """It is cancelled; what it published before counts; a worker that is gone is not waited for."""

    def script(models: list[str]) -> list[tuple[StateType, list[ModelResult]]]:
        return [(StateType.RUNNING, [row("ant")])]

    server = FakeRuns(script, obeys=obeys)
    rows = dispatch(server, work, options, minutes_per_model=5)
    assert outcomes(rows) == {"ant": "published", "bee": "timed out", "cat": "timed out"}
    assert "not done after 15 minutes" in (rows["cat"].reason or "")
    assert server.cancelled == ["asked"] if obeys else ["asked", "forced"]
    assert 900 <= server.time < 1000


def test_the_run_ends_when_its_hours_are_over(
    work: list[PlannedModel], options: ConversionOptions
) -> None:
    """Whatever the children do."""
    server = FakeRuns(lambda _: [(StateType.SCHEDULED, [])] * 10**6)
    rows = dispatch(server, work, options, ALONE, hours=1)
    assert set(outcomes(rows).values()) == {"timed out"}
    assert "hours are over" in (rows["ant"].reason or "")
    assert server.cancelled == ["asked"] * 3


def test_a_crashed_child_may_be_revived(
    work: list[PlannedModel], options: ConversionOptions
) -> None:
    """An automation puts it back in the queue: what counts is how it ends then."""

    def script(models: list[str]) -> list[tuple[StateType, list[ModelResult]]]:
        revived = [(StateType.SCHEDULED, []), (StateType.RUNNING, [row("ant", Outcome.SKIPPED)])]
        crash = [
            (StateType.RUNNING, [row("ant")]),
            (StateType.CRASHED, []),
            (StateType.CRASHED, []),
        ]
        return [*crash, *revived, *well(["bee", "cat"])]

    rows = dispatch(FakeRuns(script), work, options)
    assert set(outcomes(rows).values()) == {"published"}


def test_what_a_run_finds_when_it_is_run_again_it_published_before(
    work: list[PlannedModel], options: ConversionOptions
) -> None:
    """Killed between its release and its row; on a first attempt, another run published it."""

    def found(models: list[str]) -> list[tuple[StateType, list[ModelResult]]]:
        return [(StateType.RUNNING, [row(model, Outcome.SKIPPED)]) for model in models]

    ended = [outcomes(dispatch(FakeRuns(found, attempts=n), work, options)) for n in (1, 2)]
    assert [set(each.values()) for each in ended] == [{"skipped"}, {"published"}]


def test_a_crashed_child_that_is_not_revived_crashed(
    work: list[PlannedModel], options: ConversionOptions
) -> None:
    """The server runs it again within seconds, or not at all: its third crash is final."""
    crash = [(StateType.RUNNING, []), *[(StateType.CRASHED, [])] * 20]  # two seconds apart
    server = FakeRuns(lambda models: [*crash, *well(models)])
    assert set(outcomes(dispatch(server, work, options)).values()) == {"crashed"}


def test_a_crashed_child_that_published_is_found_in_the_store(
    work: list[PlannedModel],
    options: ConversionOptions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its row was lost with it, its release was not; one that waits for its promotion says so."""
    [ant] = [one for one in work if one.model == "ant"]
    job = toy_job(tmp_path / "a", model="ant", build_key=ant.build_key, store=options.store_url)
    toy_bundle(job)
    prove(job, toy_records(), judge=lambda *_, **__: toy_judgement())
    with monkeypatch.context() as worker:
        worker.setenv("MENAGERIE_ROLE", "worker")
        publish_bundle(job)
    server = FakeRuns(lambda _: [(StateType.RUNNING, []), (StateType.CRASHED, [])])
    rows = dispatch(server, work, options)
    assert outcomes(rows) == {"ant": "published", "bee": "crashed", "cat": "crashed"}
    assert rows["ant"].candidate


def test_a_restarted_parent_takes_up_its_children(
    work: list[PlannedModel], options: ConversionOptions
) -> None:
    """Runs at work and runs that are done are not submitted again; cancelled ones are."""
    server = FakeRuns(well)
    names = {"ant": StateType.RUNNING, "bee": StateType.COMPLETED, "cat": StateType.FAILED}
    for model, phase in names.items():
        run = uuid.uuid4()
        server.add(run, [model], {"models": [model], "target": "cpu"})
        if phase is not StateType.RUNNING:
            server.steps[run] = [(phase, [row(model)] if phase is StateType.COMPLETED else [])]
            server.look([run])
    rows = dispatch(server, work, options)
    assert set(outcomes(rows).values()) == {"published"}
    assert server.names == ["cat for cpu"]


def test_a_restarted_parent_takes_a_failure_for_an_answer(
    work: list[PlannedModel], options: ConversionOptions
) -> None:
    """Of a batch that ended failed, only the model that left no row is converted again."""
    server = FakeRuns(well)
    run = uuid.uuid4()
    server.add(run, ["ant", "bee", "cat"], {"models": ["ant", "bee", "cat"], "target": "cpu"})
    said = [row("ant"), row("bee", Outcome.FAILED, stage="lower", reason="no")]
    server.steps[run] = [(StateType.FAILED, said)]
    server.look([run])
    rows = dispatch(server, work, options)
    assert outcomes(rows) == {"ant": "published", "bee": "failed", "cat": "published"}
    assert server.names == ["cat for cpu"]


@pytest.mark.parametrize(("questions", "expected"), [(20, "published"), (10**6, "crashed")])
def test_a_server_that_is_away(
    work: list[PlannedModel], options: ConversionOptions, questions: int, expected: str
) -> None:
    """A restart is tolerated, and makes no run twice; an end is an end, with a whole table."""
    server = FakeRuns(well, away=questions)
    rows = dispatch(server, work, options, ALONE, minutes_without_server=2)
    assert set(outcomes(rows).values()) == {expected}
    assert len(server.runs) == (3 if expected == "published" else 0)


def test_a_pool_without_a_deployment_fails_its_models(
    work: list[PlannedModel], options: ConversionOptions
) -> None:
    """At once, with what to do."""
    rows = dispatch(FakeRuns(well, pools=("elsewhere",)), work, options)
    assert set(outcomes(rows).values()) == {"crashed"}
    assert "no deployment of convert-batch in it. Run `zoo cluster up` again" in (
        rows["ant"].reason or ""
    )


@pytest.mark.parametrize(
    ("stopped", "attended", "cancelled"), [(True, False, 3), (False, False, 0), (False, True, 3)]
)
def test_a_stopped_parent(
    work: list[PlannedModel],
    options: ConversionOptions,
    *,
    stopped: bool,
    attended: bool,
    cancelled: int,
) -> None:
    """A cancelled one, or one that a person interrupts, takes its children along.

    One whose host goes down leaves them at work.
    """
    server = FakeRuns(lambda _: [(StateType.RUNNING, [])] * 99, stopped=stopped)
    looks = iter(range(3))
    real = server.look

    def look(ids: Any) -> Any:
        if next(looks, None) is None:
            raise KeyboardInterrupt
        return real(ids)

    server.look = look  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        dispatch(server, work, options, ALONE, attended=attended)
    assert server.cancelled == ["asked"] * cancelled
