"""Small models share a run; large ones have their own."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

import pytest

from flows.fan_out import BatchRule, load_placement, share_out
from flows.parameters import ConversionOptions
from flows.plan import PlannedModel, plan
from zoo.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

RULE = BatchRule(seconds=100, most=3, unknown_seconds=60)


@pytest.fixture
def work(manifest: Path, tmp_path: Path) -> list[PlannedModel]:
    """The toys ant, bee and cat."""
    options = ConversionOptions(random_weights=0, manifest=str(manifest), store=str(tmp_path))
    return plan(["*"], ["cpu"], options)


def shared(work: list[PlannedModel], seconds: dict[tuple[str, str], float]) -> list[str]:
    """The batches as text."""
    return [" ".join(p.model for p in b.models) for b in share_out(work, RULE, seconds)]


def test_times_add_up(work: list[PlannedModel]) -> None:
    """Until the next one would be too much; what is unknown counts for a minute."""
    assert shared(work, {}) == ["ant", "bee", "cat"]
    assert shared(work, {("ant", "cpu"): 5.0, ("cat", "cpu"): 5.0}) == ["ant bee cat"]
    assert shared(work, {("ant", "cpu"): 900.0, ("bee", "cpu"): 1.0}) == ["ant", "bee cat"]
    assert shared([], {}) == []


def test_a_batch_is_bounded(work: list[PlannedModel]) -> None:
    """However small its models are."""
    tiny = {(p.model, "cpu"): 0.1 for p in work}
    assert [len(b.models) for b in share_out(work * 2, RULE, tiny)] == [3, 3]


def test_a_batch_has_a_name_and_a_key(work: list[PlannedModel]) -> None:
    """The key says which builds, in whatever order; the name says it to a person."""
    one, other = share_out(work, RULE, {(p.model, "cpu"): 0.1 for p in work})[0], work[::-1]
    assert one.name == "ant and 2 more for cpu"
    again = share_out(other, RULE, {(p.model, "cpu"): 0.1 for p in work})[0]
    assert again.key == one.key
    assert share_out(work[:1], RULE, {})[0].key != one.key


def test_our_own_placement_is_sound() -> None:
    """Linux converts for both targets, and Macs confirm."""
    placement = load_placement()
    assert [placement.places(t).convert for t in ("cpu", "metal")] == ["linux-cpu"] * 2
    assert placement.places("metal").confirm == "macos-metal"


def test_the_operator_may_place_a_target_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the file says of a target counts; the others stay where they say themselves."""
    own = tmp_path / "placement.toml"
    text = (files("flows") / "placement.toml").read_text()
    own.write_text(f'{text}\n[targets.metal]\nconvert = "macos-metal"\n')
    monkeypatch.setenv("MENAGERIE_PLACEMENT", str(own))
    placement = load_placement()
    assert placement.places("metal").convert == "macos-metal"
    assert placement.places("metal").confirm is None
    assert placement.places("cpu").convert == "linux-cpu"


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (("[batches]", '[targets.toaster]\nconvert = "linux-cpu"\n\n[batches]'), "toaster"),
        (
            ("[batches]", '[targets.cpu]\nconvert = "nowhere"\n\n[batches]'),
            "unknown pool 'nowhere'",
        ),
        (("[pools.macos-metal]", "[pools.macs]"), "unknown pool 'macos-metal'"),
        (("[batches]", "[batches"), "is no TOML"),
        (("most = 64", "most = 0"), "batches.most"),
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
