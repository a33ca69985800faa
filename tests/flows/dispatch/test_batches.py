"""Small models share a run; large ones have their own."""

from __future__ import annotations

import dataclasses
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest

from flows.fan_out import load_placement, share_out
from flows.parameters import ConversionOptions
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
    """As many as the placement allows, in the order of the table."""
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


def test_our_own_placement_is_sound() -> None:
    """Linux converts for both targets."""
    placement = load_placement()
    assert [placement.pool(target) for target in ("cpu", "metal")] == ["linux-cpu"] * 2


def test_the_operator_may_place_a_target_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the file says of a target counts; the others stay where they say themselves."""
    own = tmp_path / "placement.toml"
    text = (files("flows") / "placement.toml").read_text()
    own.write_text(f'{text}\n[targets.metal]\nconvert = "macos-metal"\n')
    monkeypatch.setenv("MENAGERIE_PLACEMENT", str(own))
    placement = load_placement()
    assert [placement.pool(target) for target in ("cpu", "metal")] == ["linux-cpu", "macos-metal"]


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (("[batches]", '[targets.toaster]\nconvert = "linux-cpu"\n\n[batches]'), "toaster"),
        (
            ("[batches]", '[targets.cpu]\nconvert = "nowhere"\n\n[batches]'),
            "unknown pool 'nowhere'",
        ),
        (("[pools.linux-cpu]", "[pools.linux]"), "unknown pool 'linux-cpu'"),
        (("[batches]", "[batches"), "is no TOML"),
        (("most = 8", "most = 0"), "batches.most"),
    ],
)
def test_a_placement_that_cannot_be_is_misuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: tuple[str, str], fact: str
) -> None:
    """The operator's own file is named with what is wrong in it."""
    own = tmp_path / "placement.toml"
    text = (files("flows") / "placement.toml").read_text()
    own.write_text(text.replace(*change))
    monkeypatch.setenv("MENAGERIE_PLACEMENT", str(own))
    with pytest.raises(UsageError, match=fact) as caught:
        load_placement()
    assert str(own) in str(caught.value)
    monkeypatch.setenv("MENAGERIE_PLACEMENT", str(tmp_path / "gone"))
    with pytest.raises(UsageError, match="cannot be read"):
        load_placement()
