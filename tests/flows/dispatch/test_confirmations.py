"""Emulated releases are confirmed by devices, when there are any, and nothing waits for ever."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from fake_server import FakeRuns

from flows.dispatch.confirmations import Confirmations
from flows.fan_out import load_placement
from flows.outcome.results import Confirmation, ModelResult, Outcome
from flows.parameters import RunLimits
from flows.runs import Phase
from menagerie.format.bundle_manifest import ReleaseState

EMULATED = ReleaseState.EMULATED


def row(model: str, target: str = "metal", **more: Any) -> ModelResult:
    """A published row."""
    fields = {"outcome": Outcome.PUBLISHED, "proof": EMULATED, "build_key": "a" * 64} | more
    return ModelResult(model=model, target=target, **fields)


def asking(server: FakeRuns) -> Confirmations:
    """Of a run that waits ten minutes for a model."""
    return Confirmations(
        server,  # type: ignore[arg-type]
        load_placement(),
        RunLimits(minutes_per_model=10),
        "",
        server.clock(),
    )


def confirm(server: FakeRuns, *rows: ModelResult, until: float = 10**6) -> list[ModelResult]:
    """The rows afterwards."""
    return asking(server).confirm(rows, until)


def told(server: FakeRuns, model: str, **more: Any) -> None:
    """What the device's run says of a model."""
    said = row(model, **more)
    server.script = lambda _: [(Phase.RUNNING, []), (Phase.RUNNING, [said]), (Phase.COMPLETED, [])]


def test_without_a_device_the_confirmation_stays_in_the_queue() -> None:
    """At once, not cancelled; the model counts as published, and its row says what is to come."""
    server = FakeRuns(lambda _: [])
    [metal, cpu] = confirm(server, row("ant"), row("ant", "cpu", proof=None))
    assert (metal.outcome, metal.confirmation) == (Outcome.PUBLISHED, Confirmation.WAITING)
    assert "waiting for a device of metal" in metal.remark
    assert metal.succeeded
    assert cpu.confirmation is None
    assert (server.time, server.cancelled) == (0.0, [])
    assert server.names == ["ant for metal: confirm"]


def test_asking_again_makes_no_second_run() -> None:
    """The next week's run finds the one in the queue; one that failed is asked for anew."""
    server = FakeRuns(lambda _: [])
    confirm(server, row("ant"))
    confirm(server, row("ant"))
    assert len(server.runs) == 1
    [run] = server.runs.values()
    server.steps[run.id] = [(Phase.ENDED, [])]
    server.look([run.id])
    confirm(server, row("ant"))
    assert len(server.runs) == 2


def test_a_device_that_is_there_is_waited_for() -> None:
    """Its word is in the table."""
    server = FakeRuns(lambda _: [], workers={"macos-metal"})
    told(server, "ant", proof=ReleaseState.VALIDATED, confirmation=Confirmation.CONFIRMED)
    [ant] = confirm(server, row("ant"))
    assert (ant.confirmation, ant.proof) == (Confirmation.CONFIRMED, ReleaseState.VALIDATED)
    assert (ant.succeeded, ant.remark) == (True, "")


@pytest.mark.parametrize("said", [Confirmation.CONFIRMED, Confirmation.FAILED])
def test_what_a_device_said_early_counts(said: Confirmation) -> None:
    """It confirmed while others were converted, and sleeps by now: nobody asks it again."""
    server = FakeRuns(lambda _: [], workers={"macos-metal"})
    told(server, "ant", confirmation=said)
    confirmations = asking(server)
    confirmations.ask([row("ant")])
    while not server.runs[next(iter(server.runs))].is_over:
        server.look(list(server.runs))
    server.workers.clear()
    [ant] = confirmations.confirm([row("ant")], 10**6)
    assert (ant.confirmation, len(server.runs)) == (said, 1)


def test_what_a_silent_server_was_not_asked_is_asked_later() -> None:
    """By the next call, which may have nothing else to ask."""
    server = FakeRuns(lambda _: [], away=1)
    confirmations = asking(server)
    confirmations.ask([row("ant")])
    assert server.names == []
    for _ in range(2):
        confirmations.ask([])
    assert server.names == ["ant for metal: confirm"]


@pytest.mark.parametrize("after", [Phase.CRASHED, Phase.RUNNING])
def test_what_a_device_said_counts_however_its_run_goes_on(after: Phase) -> None:
    """It spoke, and then its process was killed too often, or does not end."""
    server = FakeRuns(lambda _: [], workers={"macos-metal"}, attempts=3)
    said = row("ant", confirmation=Confirmation.FAILED)
    server.script = lambda _: [(Phase.RUNNING, [said]), *[(after, [])] * 10**4]
    confirmations = asking(server)
    confirmations.ask([row("ant")])
    if after is Phase.CRASHED:
        server.look(list(server.runs))
        server.look(list(server.runs))
        server.workers.clear()
    [ant] = confirmations.confirm([row("ant")], 10**6)
    assert (ant.confirmation, ant.succeeded) == (Confirmation.FAILED, False)


def test_a_server_that_is_away_for_a_moment_loses_no_verdict() -> None:
    """It is asked again, for as long as a run bears with a silent server."""
    server = FakeRuns(lambda _: [], workers={"macos-metal"})
    told(server, "ant", confirmation=Confirmation.FAILED)
    server.away = 3
    [ant] = confirm(server, row("ant"))
    assert ant.confirmation is Confirmation.FAILED


def test_a_confirmation_that_somebody_deletes_says_so() -> None:
    """Its run is gone: nobody will confirm it."""
    server = FakeRuns(lambda _: [], workers={"macos-metal"})
    real = server.look

    def look(ids: Any) -> Any:
        server.runs.clear()
        return real(ids)

    server.look = look  # type: ignore[method-assign]
    [ant] = confirm(server, row("ant"))
    assert (ant.confirmation, ant.confirmation_detail) == (
        Confirmation.FAILED,
        "its run was deleted",
    )


def test_a_device_that_disagrees_fails_the_model() -> None:
    """It stays published as emulated, but the run does not call that a success."""
    server = FakeRuns(lambda _: [], workers={"macos-metal"})
    detail = "diverged: y of case 0 is off by 0.5"
    told(server, "ant", confirmation=Confirmation.FAILED, confirmation_detail=detail)
    [ant] = confirm(server, row("ant"))
    assert (ant.outcome, ant.confirmation) == (Outcome.PUBLISHED, Confirmation.FAILED)
    assert not ant.succeeded
    assert detail in ant.remark


@pytest.mark.parametrize("looks", [1, 11], ids=["by the automation", "by its parent"])
def test_a_crash_that_is_mended_fails_nothing(looks: int) -> None:
    """The Mac's process was killed: its run goes on, and no second one is made."""
    server = FakeRuns(lambda _: [], workers={"macos-metal"}, attempts=1)
    validated = {"proof": ReleaseState.VALIDATED, "confirmation": Confirmation.CONFIRMED}
    said = row("ant", **validated)
    crashed = [(Phase.CRASHED, [])] * looks  # one in two seconds
    server.script = lambda _: [(Phase.RUNNING, []), *crashed, (Phase.COMPLETED, [said])]
    [ant] = confirm(server, row("ant"))
    assert (ant.confirmation, len(server.runs)) == (Confirmation.CONFIRMED, 1)


def test_a_run_that_waits_to_be_revived_is_not_asked_for_twice() -> None:
    """The next parent finds it crashed, and leaves it to come back; the third crash is the end."""
    server = FakeRuns(lambda _: [(Phase.CRASHED, [])], attempts=1)
    confirm(server, row("ant"))
    server.look(list(server.runs))
    [ant] = confirm(server, row("ant"))
    assert (ant.confirmation, len(server.runs)) == (Confirmation.WAITING, 1)
    [run] = server.runs
    server.runs[run] = dataclasses.replace(server.runs[run], attempts=3)
    confirm(server, row("ant"))
    assert len(server.runs) == 2


@pytest.mark.parametrize("phase", [Phase.WAITING, Phase.RUNNING])
def test_a_device_that_does_not_answer_is_not_waited_for_longer(phase: Phase) -> None:
    """A busy Mac, or one that fell asleep: the run ends, the confirmation goes on."""
    server = FakeRuns(lambda _: [(phase, [])] * 10**6, workers={"macos-metal"})
    [ant] = confirm(server, row("ant"))
    assert ant.confirmation is Confirmation.WAITING
    assert 600 <= server.time < 700
    assert server.cancelled == []


def test_the_end_of_the_run_ends_the_waiting() -> None:
    """A run that may take so long writes its table then; the device goes on."""
    server = FakeRuns(lambda _: [(Phase.RUNNING, [])] * 10**6, workers={"macos-metal"})
    [ant] = confirm(server, row("ant"), until=120)
    assert ant.confirmation is Confirmation.WAITING
    assert 120 <= server.time < 130
    assert server.cancelled == []


def test_a_build_that_failed_often_is_asked_for_again() -> None:
    """However often: the device's runtime may have been mended since."""
    server = FakeRuns(lambda _: [(Phase.ENDED, [])])
    for count in range(1, 13):
        confirm(server, row("ant"))
        assert len(server.runs) == count
        server.look(list(server.runs))


def test_what_failed_or_is_validated_is_not_asked_for() -> None:
    """Nor anything where there is no deployment to ask."""
    failed = row("ant", outcome=Outcome.FAILED, proof=None)
    validated = row("bee", proof=ReleaseState.VALIDATED)
    server = FakeRuns(lambda _: [])
    assert confirm(server, failed, validated) == [failed, validated]
    assert server.runs == {}
    assert confirm(FakeRuns(lambda _: [], flows=()), row("ant")) == [row("ant")]


def test_a_server_that_is_away_leaves_the_rows_as_they_are() -> None:
    """A confirmation that cannot be asked for is asked for by the next run."""
    assert confirm(FakeRuns(lambda _: [], away=10**6), row("ant")) == [row("ant")]


def test_after_a_change_of_database_it_is_asked_for_again() -> None:
    """What the store holds as emulated waits on the new server, once; nobody waits for it."""
    server = FakeRuns(lambda _: [])
    for _ in range(2):
        asking(server).ask([row("ant"), row("bee", proof=ReleaseState.VALIDATED)])
    assert server.names == ["ant for metal: confirm"]
    assert server.time == 0.0
    confirm(server, row("ant"))  # the week's run finds it
    assert len(server.runs) == 1
