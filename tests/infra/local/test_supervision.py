"""Processes of the cluster are ended with all they started, and never confused with others."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
import time
from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING

import psutil
import pytest

from flows.cli import invoke
from flows.connection import ClusterState, ask_manager, cluster_folder, running, state_path
from infra.local.cluster import free_ports, is_free, log_path
from infra.local.supervision import PORTS, child_environment, configuration, start_manager
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
    """A cluster of this test's, in a folder whose name supervisord's file could not hold."""
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path / "q\" ;#%{}'"))


@pytest.fixture
def spawn() -> Iterator[Callable[..., int]]:
    """Starts Python programs as the cluster's worker, and ends what is left of them."""
    cluster_folder().mkdir(parents=True)
    entry = "import os, sys; os.execv(sys.executable, [sys.executable, '-S', '-c', *sys.argv[1:]])"
    text = configuration(ClusterState.make(dict.fromkeys(PORTS.values(), 1)))
    text = text.replace("stopwaitsecs=20", "stopwaitsecs=1")

    def run(*arguments: str) -> int:
        command = shlex.join([sys.executable, "-S", "-c", entry, *arguments]).replace("%", "%%")
        start_manager(re.sub(r"command=.* worker -m .*", lambda _: f"command={command}", text))
        ask_manager("startProcess", "worker", False)
        return running()["worker"]

    yield run
    down()
    assert running() == {}


def down() -> list[str]:
    """What `zoo cluster down` says that it ended."""
    with redirect_stdout(StringIO()) as said:
        assert invoke(["cluster", "down", "--json"]) == 0
    ended: list[str] = json.loads(said.getvalue())["ended"]
    return ended


def ends(process: psutil.Process) -> bool:
    """Whether it ends within half a minute."""
    return not psutil.wait_procs([process], timeout=30)[1]


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
    made = ClusterState.make({"api": 4200}).model_copy(update={"up": True})
    made.save()
    return made


def test_a_zombie_is_no_process() -> None:
    """It counts as ended, though its exit code was not read yet."""
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert birth(child.pid) is None


def test_what_died_is_started_again(spawn: Callable[..., int]) -> None:
    """Without a command."""
    first = spawn(SLEEP)
    psutil.Process(first).kill()
    deadline = time.monotonic() + 30
    while running().get("worker") in {None, first}:
        assert time.monotonic() < deadline
        os.sched_yield()


def test_a_deaf_process_is_killed(spawn: Callable[..., int]) -> None:
    """After its time is up."""
    process = psutil.Process(spawn(f"{DEAF}; {SLEEP}"))
    assert said() == "deaf"
    assert down() == ["worker"]
    assert not process.is_running()


def test_down_ends_what_processes_started(spawn: Callable[..., int]) -> None:
    """Also a grandchild in a session of its own, of which no file knows; a second time: nothing."""
    spawn(PARENT, SLEEP)
    grandchild = psutil.Process(int(said()))
    before = state()
    assert down() == ["worker", f"process {grandchild.pid}"]
    assert not grandchild.is_running()
    assert ClusterState.load() == before.model_copy(update={"up": False})
    assert down() == []


def test_down_with_a_damaged_state(spawn: Callable[..., int]) -> None:
    """Processes are ended all the same, and the damaged file is put aside."""
    process = psutil.Process(spawn(SLEEP))
    state_path().write_text("{")
    assert down() == ["worker"]
    assert not process.is_running()
    assert ClusterState.load() is None


def test_processes_end_with_their_manager() -> None:
    """However that ends: here the S3 server, when supervisord is killed."""
    [port] = free_ports(1)
    ports = dict.fromkeys(PORTS.values(), port)
    made = ClusterState.make(ports).model_copy(update={"up": True})
    made.save()
    start_manager(configuration(made))
    ask_manager("startProcess", "s3", False)
    s3 = psutil.Process(running()["s3"])
    deadline = time.monotonic() + 60
    while is_free(port):
        assert s3.is_running(), log_path("s3").read_text()
        assert time.monotonic() < deadline
        os.sched_yield()
    psutil.Process(ask_manager("getPID")).kill()
    assert ends(s3)
    assert running() == {}
    assert down() == []


def test_processes_inherit_nothing_that_is_meant_for_other_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither another server's address nor another store's keys; all else stays."""
    for name in ("PREFECT_API_URL", "AWS_SECRET_ACCESS_KEY", "MENAGERIE_STORE"):
        monkeypatch.setenv(name, "elsewhere")
    monkeypatch.setenv("MENAGERIE_POOLS", "here")
    made = child_environment({"PREFECT_API_URL": "x"})
    assert "elsewhere" not in made.values()
    assert made["MENAGERIE_POOLS"] == "here"
    assert made["PREFECT_API_URL"] == "x"
    assert made["PREFECT_HOME"] == str(cluster_folder() / "prefect")


def test_ports() -> None:
    """Different ones, free until a process listens."""
    ports = free_ports(5)
    assert len(set(ports)) == 5
    with socket.create_server(("127.0.0.1", ports[0])):
        assert not is_free(ports[0])
    assert is_free(ports[0])


def test_whoever_asks_for_a_port_does_not_take_it() -> None:
    """A server can listen at any moment while another process asks whether the port is free."""
    [port] = free_ports(1)
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            is_free(port)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(500):
            socket.create_server(("127.0.0.1", port)).close()
    finally:
        done.set()
        asking.join()
