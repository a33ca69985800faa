"""The tables of cases cover the list of shims, and what is not an operator works too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from shim_device import KINDS, Device, built_kinds, shims
from stories import STORIES
from table import CASES, REFUSALS

if TYPE_CHECKING:
    from stories import Story

# Called by what a compiler has made, as Python cannot: vectors in registers (test_vector_math.py)
# and what surrounds a generated kernel (tests/runtime/test_profile.py), a C++ function object
# (tests/runtime/metal/test_bundles.py), what its checks report (test_checked_loops.py).
_ELSEWHERE = {name for name, shim in shims().items() if shim.source == "cpu/generated_code.cpp"}
_ELSEWHERE |= {"aoti_torch_mps_shared_callback", "menagerie_mps_fault"}


def test_no_device_is_missing() -> None:
    """The build has made what this platform runs: cases never vanish with a library."""
    assert {kind.target for kind in built_kinds()} == {"cpu", "metal"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.target)
def test_every_shim_has_cases(kind: Any) -> None:
    """A new shim comes with a case or a story of it."""
    promised = {name for name, shim in shims().items() if kind.target in shim.targets}
    covered = {
        f"aoti_torch_{kind.symbol}_{case.operator}" for case in CASES if case.runs_on(kind.target)
    }
    in_stories = set().union(*(names for _, names in STORIES))
    assert promised - covered - in_stories - _ELSEWHERE == set()


def test_every_case_is_of_a_shim() -> None:
    """No case is of a shim that no device promises."""
    known = set(shims())
    for case in (*CASES, *REFUSALS):
        names = {f"aoti_torch_{kind.symbol}_{case.operator}" for kind in KINDS}
        assert names & known, case


@pytest.mark.parametrize(
    ("kind", "story", "names"),
    [
        pytest.param(kind, story, names, id=f"{kind.target}-{story.__name__}")
        for kind in built_kinds()
        for story, names in STORIES
        if all(kind.target in shims()[name].targets for name in names)
    ],
)
def test_stories_hold(kind: Any, story: Story, names: frozenset[str]) -> None:
    """Each story ends well, and has called all shims that it covers."""
    device = Device(kind)
    story(device)
    assert names <= device.called
