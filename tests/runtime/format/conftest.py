"""Makes `bundle_maker` importable and gives every test a bundle of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from bundle_maker import make_bundle


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A sound bundle that the test may damage."""
    return make_bundle(tmp_path / "bundle")
