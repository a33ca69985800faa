"""A bundle that understands speech, in a folder of the test's own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from level_model import LevelSession, make_levels


@pytest.fixture
def heard() -> list[int]:
    """How many samples the model was given, call by call."""
    LevelSession.heard = []
    return LevelSession.heard


@pytest.fixture
def levels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: list[int]) -> Path:
    """The bundle's folder; nothing native is loaded."""
    del heard
    monkeypatch.setattr("menagerie.speech.transcriber.Session", LevelSession)
    return make_levels(tmp_path / "levels")
