"""A stage that takes too long, or too much memory, is ended, and its model alone has failed."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from tasks.failures import ProcessDied, StageTimedOut
from tasks.forking import spawn
from tasks.memory import group_memory, memory_allowed
from tasks.model_process import ModelProcess
from tasks.stage_table import PULL

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tasks.job import Job

GLUTTON = """
import sys
sys.stdin.readline()
held = bytearray(400 * 2**20)
held[::4096] = b"x" * len(held[::4096])
sys.stdin.readline()
"""
SLEEPER = "import sys\nsys.stdin.readline(), sys.stdin.readline()"


@pytest.fixture
def model(job: Job) -> Callable[..., ModelProcess]:
    """A model of a job with limits, whose process runs `program`."""

    def make(program: str, **limits: float) -> ModelProcess:
        command = (sys.executable, "-c", program)
        return ModelProcess(
            job.model_copy(update=limits),
            start=lambda _, log: spawn(command, log),
        )

    return make


def test_a_stage_that_does_not_end_is_ended(model: Callable[..., ModelProcess]) -> None:
    """The error names the stage and the time; the process is gone."""
    with model(SLEEPER, stage_seconds=0.3) as slow:
        process = psutil.Process(slow._process.pid)
        with pytest.raises(StageTimedOut, match=r"toy: pull was stopped after 0.3 s"):
            slow.run(PULL)
    assert not process.is_running()


def test_a_stage_that_eats_memory_is_ended(model: Callable[..., ModelProcess]) -> None:
    """Before the machine runs out of it, while it is still growing; the error names the sizes."""
    fact = r"killed: memory, pull took 0\.[234] GiB of the 0.2 GiB allowed"
    with (
        model(GLUTTON, memory_bytes=200 * 2**20) as glutton,
        pytest.raises(ProcessDied, match=fact),
    ):
        glutton.run(PULL)


def test_the_memory_of_a_group_is_that_of_all_its_processes() -> None:
    """The compilers that a model starts count with it."""
    child = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {GLUTTON!r}]).wait()"
    process = subprocess.Popen([sys.executable, "-c", child], start_new_session=True, stdin=-1)
    assert process.stdin is not None
    try:
        process.stdin.write(b"\n")
        process.stdin.flush()
        while group_memory(process.pid) < 400 * 2**20:
            assert process.poll() is None
    finally:
        process.stdin.write(b"\n")
        process.stdin.close()
        process.wait()
    assert group_memory(2**22 + 1) == 0


FORKING = """
import os, sys
held = bytearray(200 * 2**20)
held[::4096] = b"x" * len(held[::4096])
if os.fork() == 0:
    print(flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks")
def test_what_forks_share_is_counted_once() -> None:
    """A model whose golden cases are made in a fork takes no memory twice."""
    command = [sys.executable, "-c", FORKING]
    with subprocess.Popen(command, start_new_session=True, stdin=-1, stdout=-1) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert 200 * 2**20 < group_memory(process.pid) < 300 * 2**20
        assert process.stdin is not None
        process.stdin.close()


def test_without_a_limit_most_of_the_memory_is_allowed(tmp_path: Path) -> None:
    """So that the kernel need not choose a victim; without control groups the machine's counts."""
    total = psutil.virtual_memory().total
    assert total * 0.8 < memory_allowed(None, tmp_path) < total * 0.9
    assert 0 < memory_allowed(None) < total * 0.9
    assert memory_allowed(5) == 5
    assert group_memory(os.getpgid(0)) > 2**20


V2 = "0::/system.slice/worker.service"
V1 = "5:cpu,cpuacct:/\n4:memory:/docker/ab\n1:name=systemd:/docker/ab"
SLICE = "sys/fs/cgroup/system.slice"
V1_FILE = "memory.limit_in_bytes"
NO_LIMIT = "9223372036854771712"  # version 1 says so


def write(folder: Path, files: dict[str, str]) -> None:
    """Files as the kernel shows them."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{text}\n")


@pytest.mark.parametrize(
    ("groups", "files"),
    [
        (V2, {f"{SLICE}/worker.service/memory.max": "1000"}),
        (V2, {f"{SLICE}/worker.service/memory.max": "max", f"{SLICE}/memory.max": "1000"}),
        (V2, {f"{SLICE}/worker.service/memory.max": "1000", f"{SLICE}/memory.max": "2000"}),
        (V2, {f"{SLICE}/worker.service/memory.max": "2000", f"{SLICE}/memory.max": "1000"}),
        ("0::/", {"sys/fs/cgroup/memory.max": "1000"}),  # a container's own view
        (V2, {"sys/fs/cgroup/memory.max": "1000"}),  # the host's path, the container's files
        ("0::/../other", {"sys/fs/cgroup/memory.max": "1000"}),
        (V1, {f"sys/fs/cgroup/memory/docker/ab/{V1_FILE}": "1000"}),
        (V1, {f"sys/fs/cgroup/memory/{V1_FILE}": "1000"}),
        (
            V1 + "\n0::/",
            {
                f"sys/fs/cgroup/memory/docker/ab/{V1_FILE}": "1000",
                f"sys/fs/cgroup/memory/{V1_FILE}": NO_LIMIT,
            },
        ),
    ],
)
def test_what_a_container_or_a_service_may_take_counts(
    tmp_path: Path, groups: str, files: dict[str, str]
) -> None:
    """The lowest limit of the control groups that the process is in: 1000 bytes in each case."""
    write(tmp_path, {"proc/self/cgroup": groups, **files})
    assert memory_allowed(None, tmp_path) == 850
    assert memory_allowed(2000, tmp_path) == 2000


def test_groups_without_a_limit_take_nothing_away(tmp_path: Path) -> None:
    """Neither `max`, nor the number that means it, nor a group that is not there."""
    unlimited = {
        "proc/self/cgroup": f"{V2}\n{V1}",
        f"{SLICE}/worker.service/memory.max": "max",
        f"sys/fs/cgroup/memory/docker/ab/{V1_FILE}": NO_LIMIT,
    }
    write(tmp_path, unlimited)
    assert memory_allowed(None, tmp_path) == memory_allowed(None, tmp_path / "nothing")
