"""Processes of the cluster are ended with all they started, and never confused with others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from flows.connection import (
    ClusterState,
    Database,
    ask_manager,
    cluster_folder,
    running,
    state_path,
)
from infra.local import processes
from infra.local.down import down
from infra.local.ports import free_ports, is_free
from infra.local.processes import (
    MARK,
    Process,
    child_environment,
    log_path,
    marked,
    start_manager,
)
from zoo.processes import birth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SLEEP = "import time; time.sleep(600)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True)"
PARENT = (
    "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', sys.argv[1]],"
    " start_new_session=True); print(child.pid, flush=True); child.wait()"
)


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster of this test's."""
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path / "home"))


@pytest.fixture
def spawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., int]]:
    """Starts Python programs as the cluster's worker, and ends what is left of them."""
    cluster_folder().mkdir(parents=True)
    entry = "import os, sys; os.execv(sys.executable, [sys.executable, '-S', '-c', *sys.argv[1:]])"

    def run(*arguments: str) -> int:
        worker = Process("worker", lambda _: [], lambda *_: {}, seconds=1)
        monkeypatch.setattr(processes, "PROCESSES", {"worker": worker})
        join = processes.shlex.join  # type: ignore[attr-defined]
        command = [sys.executable, "-S", "-c", entry, *arguments]
        monkeypatch.setattr(processes.shlex, "join", lambda _: join(command))  # type: ignore[attr-defined]
        start_manager()
        ask_manager("startProcess", "worker", False)
        return running()["worker"]

    yield run
    down()
    assert marked() == []


def said() -> str:
    """The first line of the program's log, once it is there."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if lines := log_path("worker").read_text().splitlines():
            return lines[0]
        os.sched_yield()
    raise TimeoutError


def state() -> ClusterState:
    """Of a cluster that is up."""
    made = ClusterState(database=Database.SQLITE, ports={"api": 4200}, up=True)
    made.save()
    return made


def test_an_exit_code_that_nobody_took_is_no_process() -> None:
    """A zombie counts as ended."""
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert birth(child.pid) is None


def test_what_died_stays_down_and_is_started_again_when_asked(spawn: Callable[..., int]) -> None:
    """So that `zoo status` can name it."""
    first = spawn(SLEEP)
    psutil.Process(first).kill()
    deadline = time.monotonic() + 30
    while running():
        assert time.monotonic() < deadline
        os.sched_yield()
    ask_manager("startProcess", "worker", False)
    assert running()["worker"] != first


def test_a_deaf_process_is_killed(spawn: Callable[..., int]) -> None:
    """After its time is up."""
    process = psutil.Process(spawn(f"{DEAF}; {SLEEP}"))
    assert said() == "deaf"
    assert down() == ["worker"]
    assert not process.is_running()


def test_down_ends_what_processes_started(spawn: Callable[..., int]) -> None:
    """Also a grandchild in a session of its own, of which no file knows; a second time: nothing."""
    worker = spawn(PARENT, SLEEP)
    grandchild = int(said())
    assert {worker, grandchild} < {each.pid for each in marked()}
    before = state()
    assert down() == ["worker", f"process {grandchild}"]
    assert marked() == []
    assert ClusterState.load() == before.model_copy(update={"up": False})
    assert down() == []


def test_down_with_a_damaged_state(spawn: Callable[..., int]) -> None:
    """Processes are ended all the same, and the damaged file is put aside."""
    process = psutil.Process(spawn(SLEEP))
    state_path().write_text("{")
    assert down() == ["worker"]
    assert not process.is_running()
    assert ClusterState.load() is None


def test_down_finds_what_lost_its_manager(spawn: Callable[..., int]) -> None:
    """Killed itself, it leaves processes that carry the cluster's mark."""
    worker = spawn(SLEEP)
    psutil.Process(ask_manager("getPID")).kill()
    state()
    assert f"process {worker}" in down()
    assert running() == {}


def test_a_process_whose_program_is_being_replaced_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Linux shows no environment for that moment; of a thread of the kernel it never shows one."""

    class Process:
        pid = 1

        def __init__(self, *seen: dict[str, str]) -> None:
            self.seen = list(seen)

        def environ(self) -> dict[str, str]:
            return self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]

        def status(self) -> str:
            return psutil.STATUS_SLEEPING

    ours = {MARK: str(cluster_folder())}
    table = [Process({}, ours), Process({}), Process({"A": "b"}), Process(ours)]
    monkeypatch.setattr(psutil, "process_iter", lambda: iter(table))
    assert marked() == [table[3], table[0]]


def test_processes_inherit_nothing_that_is_meant_for_other_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither another server's address nor another store's keys; all else stays."""
    for name in (
        "PREFECT_API_URL",
        "AWS_SECRET_ACCESS_KEY",
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
