"""Which cases are run at all, which twice, and which one is timed and run beside a session."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import numpy as np
import pytest
from safetensors.numpy import save_file

from menagerie.format.bundle_manifest import BundleProgram, State, TensorSpec, unsealed
from menagerie.numerics import DEFAULT_TOLERANCES, Dtype
from menagerie.validation import checks
from menagerie.validation.checks import (
    Judged,
    LoadedProgram,
    coexists,
    is_quick,
    judge_program,
    representative_case,
)
from menagerie.validation.goldens import GoldenCases

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from menagerie.tensor_files import Array

_TENSOR = TensorSpec(name="x", dtype=Dtype.FLOAT32, shape=("n",))


class _Session(AbstractContextManager["_Session"]):
    """Gives its input back; a run takes a hundredth of a second for each element.

    The first one compiles shaders for `compiling` seconds as well, which the emulator counts.
    """

    keeps_state = False

    def __init__(self, monkeypatch: pytest.MonkeyPatch, compiling: float = 0.0) -> None:
        self.runs: list[int] = []
        self._compiling, self._compiled = compiling, 0.0
        self._now = 0.0
        monkeypatch.setattr(checks, "compiling_seconds", lambda: self._compiled)
        monkeypatch.setattr(time, "perf_counter", lambda: self._now)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to close."""

    def reset(self) -> None:
        """There is no state."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The same."""
        self.runs.append(inputs["x"].size)
        self._now += inputs["x"].size / 100 + self._compiling - self._compiled
        self._compiled = self._compiling
        return {"x": inputs["x"]}


def _program(folder: Path, session: _Session, *sizes: int) -> LoadedProgram:
    entry = BundleProgram(
        name="main",
        files={"library": unsealed("model.so"), "golden": unsealed("golden.safetensors")},
        golden_cases=len(sizes),
        inputs=(_TENSOR,),
        outputs=(_TENSOR,),
        dimensions={"n": (1, 1000, 1)},
        constants={},
        symbols=(),
    )
    tensors = {
        f"{case}/{side}/x": np.ones(size, np.float32)
        for case, size in enumerate(sizes)
        for side in ("input", "output")
    }
    save_file(tensors, folder / "golden.safetensors")
    goldens = GoldenCases(folder / "golden.safetensors", entry)
    return LoadedProgram(entry, session, goldens)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sizes", "judging", "again"),
    [
        ((300, 5, 600, 90), [300, 5, 5, 600, 90, 90], 90),  # the representative is run twice
        ((300, 5, 600, 20), [300, 5, 5, 600, 20, 20], 20),
        ((40, 40, 40), [40, 40, 40, 40], 40),  # three alike: the first twice
        ((600, 300), [600, 300, 300], 300),  # none is short
    ],
)
def test_what_takes_seconds_is_compared_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sizes: tuple[int, ...],
    judging: list[int],
    again: int,
) -> None:
    """Every case is; quick ones and the representative run again, that one beside a session."""
    session = _Session(monkeypatch)
    program = _program(tmp_path, session, *sizes)
    judged = judge_program(program, DEFAULT_TOLERANCES, step=lambda _: None, seconds=0, threads=1)
    assert judged.facts == []
    assert [each.case for each in judged.validation.parity] == list(range(len(sizes)))
    assert session.runs == judging
    session.runs.clear()
    assert coexists(program, judged, lambda _: session) == ""  # type: ignore[arg-type, return-value]
    assert session.runs == [again] * 3  # in the second, and in the first before and after its end


@pytest.mark.parametrize(
    ("sizes", "most", "run"),
    [
        ((300, 5, 600, 90), 10.1, [0, 1, 2, 3]),  # 9.95 s, and 0.05 s where a quick one runs again
        ((300, 5, 600, 90), 9.0, [0, 1, 3]),  # the highest would take 6 of the 5.9 that are left
        ((300, 5, 600, 90), 0.0, [0, 1]),  # the first and the lowest always run
        ((300, 300, 300), 7.0, [0, 1]),  # of equals those that fit
        ((5, 0, 600), 1.0, [0, 1]),  # without elements there is nothing to estimate by
    ],
)
def test_cases_that_outlast_the_proof_are_left_to_a_device(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sizes: tuple[int, ...],
    most: float,
    run: list[int],
) -> None:
    """They are named, and nothing is claimed of them; it goes by a clock that only runs tell."""
    program = _program(tmp_path, _Session(monkeypatch), *sizes)
    judged = judge_program(
        program, DEFAULT_TOLERANCES, step=lambda _: None, seconds=0, threads=1, most=most
    )
    found = judged.validation
    assert found.passed
    assert [each.case for each in found.parity] == run
    left = [fact for fact in found.doubts if "to be confirmed on a device" in fact]
    cases = [case for case in range(len(sizes)) if case not in run]
    wanted = [f"program main, case {c} (n={sizes[c]}) was not emulated" for c in cases]
    assert [fact[: len(start)] for fact, start in zip(left, wanted, strict=True)] == wanted


def test_work_that_grows_by_the_square_is_estimated_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 1 s for 10 and 4 s for 20 elements, 40 are to take 16 s, not 8."""
    judged = Judged(_program(tmp_path, _Session(monkeypatch), 20, 10, 40), {}, [20, 10, 40])
    judged.took += [4.0, 1.0]
    assert judged.outlasts(2, 15.9)
    assert not judged.outlasts(2, 16.1)


def test_time_that_compiling_took_is_not_the_cases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other case is left out by it, and no run is repeated without checks for its sake."""
    session = _Session(monkeypatch, compiling=57.0)
    judged = judge_program(
        _program(tmp_path, session, 100, 10, 300),
        DEFAULT_TOLERANCES,
        step=lambda _: None,
        seconds=0,
        threads=1,
        most=70.0,
    )
    assert [each.case for each in judged.validation.parity] == [0, 1, 2]
    assert judged.took == pytest.approx([1.0, 0.1, 3.0])


def test_all_calls_of_a_program_with_state_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They build on each other, so that none is left out whatever it takes."""
    program = _program(tmp_path, _Session(monkeypatch), 300, 300, 600, 600)
    state = State(constants=("buffer",), calls=2)
    program = replace(
        program, entry=replace(program.entry, constants={"buffer": "buffer"}, state=state)
    )
    judged = Judged(program, {}, [300, 300, 600, 600])
    judged.took += [3.0, 3.0]
    assert not judged.outlasts(2, 0.0)


@pytest.mark.parametrize(
    ("elements", "seconds", "case"),
    [
        ([9, 3, 15, 5], [3.0, 0.05, 6.0, 0.1], 3),
        ([9, 3, 15], [0.3, 0.1, 0.6], 2),
        ([9, 9, 9], [0.3, 0.3, 0.3], 0),  # the first of equals
        ([9, 3, 15], [3.0, 1.5, 6.0], 1),  # none is short: the quickest
        ([9, 3, 15], [3.0], 0),  # so far
    ],
)
def test_the_largest_case_of_a_second_at_most_represents_all(
    elements: list[int], seconds: list[float], case: int
) -> None:
    """What takes longer says no more when it is repeated."""
    assert representative_case(elements, seconds) == case


def test_a_quarter_of_a_second_is_quick() -> None:
    """Such a case is run twice, whichever case represents it."""
    assert is_quick(0.25)
    assert not is_quick(0.26)
