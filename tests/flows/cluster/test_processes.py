"""Processes are recognised, ended with all they started, and never confused with others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from flows.cluster.down import down
from flows.cluster.ports import free_ports, is_free
from flows.cluster.processes import MARK, alive, child_environment, log_path, marked, stop
from flows.cluster.processes import spawn as start
from flows.cluster.state import ClusterState, Database, ProcessRecord, cluster_folder, state_path
from zoo.processes import birth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SLEEP = "import time; time.sleep(600)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True)"
PARENT = (
    "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', sys.argv[1]],"
    " start_new_session=True); print(child.pid, flush=True); child.wait()"
)


@pytest.fixture
def spawn() -> Iterator[Callable[..., ProcessRecord]]:
    """Starts Python programs as the cluster does, and ends what is left of them."""
    cluster_folder().mkdir(parents=True)

    def run(*arguments: str) -> ProcessRecord:
        return start("program", [sys.executable, "-S", "-c", *arguments], {})

    yield run
    for pid in marked():
        os.kill(pid, signal.SIGKILL)


def said(count: int = 1) -> list[str]:
    """The first lines of the program's log, once they are there."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        lines = log_path("program").read_text().splitlines()
        if len(lines) >= count:
            return lines
        os.sched_yield()
    raise TimeoutError


def test_a_process_is_known_by_its_birth(spawn: Callable[..., ProcessRecord]) -> None:
    """Alive until it is killed; in between, its record fits nobody else."""
    record = spawn(SLEEP)
    assert alive(record)
    assert not alive(ProcessRecord(pid=os.getpid(), started=record.started))
    assert not alive(None)
    os.kill(record.pid, signal.SIGKILL)
    stop(record, 5)
    assert not alive(record)


def test_an_id_that_was_given_anew_is_left_alone(spawn: Callable[..., ProcessRecord]) -> None:
    """A process with the id of ours but another birth is no process of ours: it lives on."""
    stranger = spawn(SLEEP)
    stop(ProcessRecord(pid=stranger.pid, started="another boot 1"), 0.1)
    assert alive(stranger)


def test_an_exit_code_that_nobody_took_is_no_process() -> None:
    """A zombie counts as ended."""
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert birth(child.pid) is None


def test_a_deaf_process_is_killed(spawn: Callable[..., ProcessRecord]) -> None:
    """After its time is up."""
    record = spawn(f"{DEAF}; {SLEEP}")
    assert said() == ["deaf"]
    stop(record, 0.2)
    assert not alive(record)


def test_down_ends_what_processes_started(spawn: Callable[..., ProcessRecord]) -> None:
    """Also a grandchild in a session of its own, of which no file knows; a second time: nothing."""
    record = spawn(PARENT, SLEEP)
    grandchild = int(said()[0])
    assert sorted(marked()) == sorted([record.pid, grandchild])
    ports = {"api": 4200}
    state = ClusterState(database=Database.SQLITE, ports=ports, processes={"worker": record})
    state.save()
    assert down() == ["worker", f"process {grandchild}"]
    assert marked() == []
    after = ClusterState.load()
    assert after is not None
    assert not after.up
    assert after.ports == ports
    assert down() == []


def test_down_with_a_damaged_state(spawn: Callable[..., ProcessRecord]) -> None:
    """Processes are found by their mark, and the damaged file is put aside."""
    record = spawn(SLEEP)
    state_path().write_text("{")
    assert down() == [f"process {record.pid}"]
    assert ClusterState.load() is None


def test_processes_inherit_nothing_that_is_meant_for_other_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither another server's address nor another store's keys; all else stays."""
    for name in (
        "PREFECT_API_URL",
        "MENAGERIE_S3_SECRET_KEY",
        "MENAGERIE_STORE",
        "MENAGERIE_POSTGRES",
    ):
        monkeypatch.setenv(name, "elsewhere")
    monkeypatch.setenv("MENAGERIE_PLACEMENT", "here")
    made = child_environment({"PREFECT_HOME": "x"})
    assert "elsewhere" not in made.values()
    assert made["MENAGERIE_PLACEMENT"] == "here"
    assert made["PREFECT_HOME"] == "x"
    assert made[MARK] == str(cluster_folder())


def test_ports() -> None:
    """Different ones, free until somebody listens."""
    ports = free_ports(5)
    assert len(set(ports)) == 5
    import socket

    with socket.create_server(("127.0.0.1", ports[0])):
        assert not is_free(ports[0])
    assert is_free(ports[0])
