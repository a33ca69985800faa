"""Two small models and the command line take no more instructions to start than are recorded."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from benchmarks.instructions import MODELS, MOST_CHANGE, change, commands, counted, kind, recorded

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.sweep
@pytest.mark.parametrize("model", MODELS)
def test_no_start_takes_more_instructions_than_before(tmp_path: Path, model: str) -> None:
    """Counts repeat to the last digit, so three in a hundred are a change of ours.

    `python benchmarks/instructions.py --record` keeps what was changed on purpose.
    """
    before = recorded()
    if before is None or shutil.which("valgrind") is None:
        pytest.skip(f"counts of {kind()} are not recorded yet, or valgrind is missing")
    found = {
        name: counted(command, tmp_path) for name, command in commands(tmp_path, [model]).items()
    }
    assert found.keys() == before.keys() - {*MODELS} | {model}
    changes = {name: change(count, before[name]) for name, count in found.items()}
    assert all(abs(more) <= MOST_CHANGE for more in changes.values()), changes


def test_a_change_is_a_share_of_what_was_before() -> None:
    """By hand."""
    assert change(103, 100) == pytest.approx(0.03)
    assert change(90, 100) == pytest.approx(-0.1)
