"""Which server forks a model's process: one while it serves, another one where it does not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tasks.forking import Servers
from tasks.model_process import ModelProcess
from tasks.stage_table import PULL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tasks.job import Job

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks")


@pytest.fixture
def servers() -> Iterator[Servers]:
    """Of fake models."""
    made = Servers(sys.executable, str(Path(__file__).with_name("fake_fork_server.py")))
    yield made
    if made._server is not None:
        made._server.kill()


def _server_of(servers: Servers, job: Job) -> int:
    """The number of the server that forked a model's process."""
    with ModelProcess(job, start=servers.begin) as model:
        model.run(PULL)
        assert servers._server is not None
        return servers._server._process.pid


def test_models_share_a_server_until_the_environment_changes(
    servers: Servers, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier one still serves what it was asked before."""
    first = _server_of(servers, job)
    assert _server_of(servers, job) == first
    with ModelProcess(job, start=servers.begin) as early:
        monkeypatch.setenv("CXX", "another")
        second = _server_of(servers, job)
        assert second != first
        assert early.run(PULL).parameters == 3
    assert _server_of(servers, job) == second


def test_after_a_death_another_server_loads_nothing_ahead(servers: Servers, job: Job) -> None:
    """What ended the first may have been what it loaded."""
    first = _server_of(servers, job)
    servers.load_ahead("dying")
    psutil.wait_procs([psutil.Process(first)], timeout=60)
    servers.load_ahead("dying")
    second = _server_of(servers, job)
    assert second != first
    assert psutil.pid_exists(second)
