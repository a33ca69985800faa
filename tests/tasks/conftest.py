"""Makes `toy_zoo` importable and gives every test a home and a job of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from toy_zoo import toy_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.job import Job


@pytest.fixture(autouse=True)
def own_home(
    tmp_path: Path, lend_compiled: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Menagerie's cache folder, for this test alone."""
    home = lend_compiled(tmp_path / "home")
    monkeypatch.setenv("MENAGERIE_HOME", str(home))
    return home


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job for a model called `toy`, its working folder made."""
    made = toy_job(tmp_path)
    made.folder.mkdir()
    return made
