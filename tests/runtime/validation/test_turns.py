"""Two sides in turns: which is called when, what is counted, and what a side's death does."""

from __future__ import annotations

import itertools
import sys
import time
from typing import TYPE_CHECKING

import pytest

from menagerie.errors import SessionError
from menagerie.timing import Partner, Turn, artifact, take_turn, time_in_turns

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SERVE = "from menagerie.timing import serve\n"
SPIN_S = 0.01


def spin() -> None:
    """Computes for 10 ms of processor time."""
    end = time.process_time() + SPIN_S
    while time.process_time() < end:
        continue


class Clock:
    """Moves by what a turn takes, and no further."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)


@pytest.mark.parametrize(
    ("turn_seconds", "seconds", "rounds"),
    [(0.25, 0, 1), (0.25, 1, 3), (0.25, 4, 8), (1, 2, 2), (6, 1, 1)],
)
def test_long_calls_are_repeated_less(
    monkeypatch: pytest.MonkeyPatch, turn_seconds: float, seconds: float, rounds: int
) -> None:
    """At least one round and the time given; three unless they take twice that."""
    clock = Clock(monkeypatch)
    calls = itertools.count()

    def turn() -> Turn:
        clock.now += turn_seconds
        return Turn((turn_seconds * (1e3 + 50 * (next(calls) % 4)),), 0.0)

    first, second = time_in_turns([turn, turn], seconds=seconds, threads=1)
    assert (first.runs, second.runs) == (rounds, rounds)


@pytest.mark.parametrize(("changes", "rounds"), [([0, 15], 6), ([0, 25], 50), ([0] * 5 + [25], 50)])
def test_steady_times_end_it_early(
    monkeypatch: pytest.MonkeyPatch, changes: list[int], rounds: int
) -> None:
    """Where one side's last six turns differ by 2 % at most, and the other's do."""
    clock = Clock(monkeypatch)
    steps = itertools.cycle(changes)

    def side(step: Callable[[], int]) -> Callable[[], Turn]:
        def turn() -> Turn:
            clock.now += 0.01
            return Turn((1e3, 1e3 + step(), 9e3), 0.0)

        return turn

    times = time_in_turns([side(lambda: 0), side(steps.__next__)], seconds=1, threads=1)
    assert [each.runs for each in times] == [3 * rounds] * 2


def test_sides_alternate_and_the_first_round_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both take as many turns, one after the other, whatever they cost."""
    clock, called = Clock(monkeypatch), list[str]()

    def side(name: str, wall: float) -> Callable[[], Turn]:
        def turn() -> Turn:
            clock.now += wall / 1e3
            called.append(name)
            first = called.count(name) == 1
            return Turn((1e6,) if first else (wall, 3 * wall), 4 * wall)

        return turn

    fast, slow = time_in_turns([side("a", 10.0), side("b", 20.0)], seconds=0.08, threads=2, case=1)
    assert called == ["a", "b"] * 4
    assert (fast.runs, fast.minimum_ms, fast.median_ms) == (6, 10.0, 20.0)
    assert (slow.runs, slow.minimum_ms, slow.median_ms) == (6, 20.0, 40.0)
    assert (fast.processor_ms, slow.processor_ms) == (20.0, 40.0)
    assert (fast.threads, fast.case) == (2, 1)


def test_a_turn_repeats_short_calls() -> None:
    """Every call is timed, and the processor's time is that of all of them together."""
    turn = take_turn(spin, seconds=3.5 * SPIN_S)
    assert 1 <= len(turn.wall_ms) <= 4
    assert min(turn.wall_ms) >= 0.9 * 1e3 * SPIN_S
    assert turn.processor_ms >= 0.9 * 1e3 * SPIN_S * len(turn.wall_ms)
    assert len(take_turn(lambda: None, seconds=0).wall_ms) == 1


def test_a_partner_takes_its_turn_in_its_own_process() -> None:
    """What it prints, at any time, is no answer."""
    code = "serve(lambda: print('loaded') or (lambda: print('called')))"
    partner = Partner("toy", [sys.executable, "-c", SERVE + code])
    try:
        first, second = partner.turn(), partner.turn()
    finally:
        partner.close()
    assert first.wall_ms
    assert second.wall_ms
    assert first != second


@pytest.mark.parametrize("code", ["raise SystemExit(3)", "serve(lambda: (lambda: exit(3)))"])
def test_a_partner_that_dies_is_an_error(code: str) -> None:
    """Before its first turn or in it; it is not waited for."""
    partner = Partner("toy", [sys.executable, "-c", SERVE + code])
    try:
        with pytest.raises(SessionError, match="toy: its process gave no answer"):
            partner.turn()
    finally:
        partner.close()


def test_an_artifact_has_a_process_of_its_own(
    make_bundle: Callable[..., Path], misdeed: type
) -> None:
    """One that crashes or fails there is an error here, and no more."""
    cases = [misdeed.NONE, misdeed.SEGMENTATION_FAULT, misdeed.RETURN_AN_ERROR]
    bundle = make_bundle(main=cases)
    with artifact(bundle, "main", 0, 1) as partner:
        assert partner.turn().wall_ms
    for case in (1, 2):
        with (
            artifact(bundle, "main", case, 1) as partner,
            pytest.raises(SessionError, match="program main"),
        ):
            partner.turn()
