"""The emulated device, and kernels that most tests of this folder share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from emulated_device import EmulatedDevice, Library


@pytest.fixture(scope="session")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> EmulatedDevice:
    """The emulated device, which keeps what it compiles in a folder of this session."""
    return EmulatedDevice(tmp_path_factory.mktemp("emulator"))


@pytest.fixture(scope="session")
def kernels(emulated: EmulatedDevice) -> Library:
    """The kernels of kernels.metal, compiled once."""
    return emulated.compile((Path(__file__).parent / "kernels.metal").read_text())
