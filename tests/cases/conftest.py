"""Makes the tables importable, and gives each test a device."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from shim_device import Device, built_kinds

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session", params=built_kinds(), ids=lambda kind: kind.target)
def device(request: pytest.FixtureRequest) -> Device:
    """Each device whose runtime is built."""
    return Device(request.param)


@pytest.fixture(autouse=True)
def one_thread_of_torch() -> Iterator[None]:
    """The reference computes on one thread: small cases are not worth more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
