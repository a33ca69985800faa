"""Small models share a run; large ones have their own."""

from __future__ import annotations

import dataclasses
import uuid
from typing import TYPE_CHECKING

import pytest
from prefect.client.schemas.objects import FlowRun, StateType

from flows.batches import pool_of, share_out
from flows.fan_out import Action, decide
from flows.parameters import ConversionOptions, RunLimits
from flows.plan import PlannedModel, plan
from zoo.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def work(manifest: Path, tmp_path: Path) -> list[PlannedModel]:
    """The toys ant, bee and cat."""
    options = ConversionOptions(random_weights=0, manifest=str(manifest), store=str(tmp_path))
    return plan(["*"], ["cpu"], options)


def test_models_of_one_target_share_a_run(work: list[PlannedModel]) -> None:
    """As many as are allowed, in the order of the table."""
    shared = [" ".join(one.model for one in batch.models) for batch in share_out(work, 2)]
    assert shared == ["ant bee", "cat"]
    others = [dataclasses.replace(one, target="metal") for one in work[:1]]
    batches = share_out([*others, *work], 3)
    assert [(batch.target, len(batch.models)) for batch in batches] == [("metal", 1), ("cpu", 3)]
    assert share_out([], 3) == []


def test_a_batch_has_a_name_and_a_key(work: list[PlannedModel]) -> None:
    """The key says which builds, in whatever order; the name says it to a person."""
    [one], [again] = share_out(work, 3), share_out(work[::-1], 3)
    assert one.name == "ant and 2 more for cpu"
    assert again.key == one.key
    assert share_out(work[:1], 3)[0].key != one.key


def test_the_operator_may_place_a_target_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux converts for both targets, unless the operator says otherwise of one."""
    monkeypatch.delenv("MENAGERIE_POOLS", raising=False)
    assert [pool_of(target) for target in ("cpu", "metal")] == ["linux-cpu", "linux-cpu"]
    monkeypatch.setenv("MENAGERIE_POOLS", "metal = macos-metal, cpu=elsewhere")
    assert [pool_of(target) for target in ("cpu", "metal")] == ["elsewhere", "macos-metal"]


@pytest.mark.parametrize("mistake", ["metl=macos-metal", "metal:macos-metal", "metal=", "=pool"])
def test_a_mistake_of_the_operator_is_refused(
    monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    """Else the target would be converted elsewhere silently."""
    monkeypatch.setenv("MENAGERIE_POOLS", f"cpu=linux-cpu,{mistake}")
    with pytest.raises(UsageError, match=f"{mistake!r} is not a target with its pool"):
        pool_of("metal")


_RULES = [  # state, seconds in it, seconds without a worker, doomed; action and reason
    (None, 0, 0, "", "conclude", ""),  # it was deleted
    ("SCHEDULED", 10**6, 119, "", "wait", ""),
    ("SCHEDULED", 0, 120, "", "cancel", "no worker in pool linux-cpu for 2 minutes: start one"),
    ("PENDING", 0, 120, "", "cancel", "no worker in pool linux-cpu for 2 minutes: start one"),
    ("RUNNING", 900, 10**6, "", "wait", ""),  # five minutes for each of three models
    ("RUNNING", 901, 0, "", "cancel", "not done after 15 minutes"),
    ("CANCELLING", 60, 0, "no worker", "wait", ""),
    ("CANCELLING", 61, 0, "no worker", "give_up", ""),
    ("CRASHED", 29, 10**6, "", "wait", ""),  # the automation may revive it
    ("CRASHED", 30, 0, "", "conclude", ""),
    ("COMPLETED", 0, 0, "", "conclude", ""),
    ("CANCELLED", 0, 0, "no worker", "conclude", ""),
]


@pytest.mark.parametrize(("state", "age", "alone", "doomed", "action", "reason"), _RULES)
def test_what_is_done_about_a_run(
    work: list[PlannedModel],
    state: str | None,
    age: int,
    alone: int,
    doomed: str,
    action: str,
    reason: str,
) -> None:
    """By its state and how long ago things were: a table of the rules, without any server.

    The parent's loop, which performs them, is tried in test_conversions.
    """
    limits = RunLimits(minutes_per_model=5, minutes_without_worker=2)
    [batch] = share_out(work, 3)
    if state is not None:
        batch.run = FlowRun(flow_id=uuid.uuid4(), state_type=StateType[state])
    batch.since, batch.served, batch.doomed = 10**7 - age, 10**7 - alone, doomed
    assert decide(batch, limits, 10**7) == (Action[action.upper()], reason)
