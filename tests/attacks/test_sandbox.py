"""A library that is being proven reads no secrets, reaches no network and leaves nothing behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from menagerie.validation.sandbox import BUBBLEWRAP, contained, exit_status, sandbox_name

pytestmark = pytest.mark.skipif(
    sandbox_name() != BUBBLEWRAP, reason="the kernel makes no namespaces for this user"
)


def tried(code: str, *arguments: object, readable: tuple[Path, ...] = ()) -> str:
    """What Python code, which stands for a library's constructor, prints in the sandbox."""
    command, _ = contained(
        [sys.executable, "-I", "-c", code, *map(str, arguments)], readable=readable
    )
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": os.defpath},
    )
    return (done.stdout + done.stderr).strip().splitlines()[-1]


def test_it_reads_what_it_is_given_and_no_more(tmp_path: Path) -> None:
    """The bundle, but no file beside it, no home and no keys."""
    for name in ("bundle", "keys"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    bundle = tmp_path / "bundle"
    code = "import sys; print(open(sys.argv[1]).read())"
    assert tried(code, bundle / "file", readable=(bundle,)) == "bundle"
    assert "FileNotFoundError" in tried(code, tmp_path / "keys" / "file", readable=(bundle,))
    write = "import sys; open(sys.argv[1], 'w')"
    assert "Read-only file system" in tried(write, bundle / "file", readable=(bundle,))


def test_it_sees_no_other_process() -> None:
    """So that nobody's environment can be read: the caller has the keys of store and API in it."""
    code = "import os; print(sorted(p for p in os.listdir('/proc') if p.isdigit()))"
    assert tried(code) in {"['1', '2']", "['1', '2', '3']"}
    assert "FileNotFoundError" in tried("open('/proc/4/environ')")


def test_it_reaches_no_network() -> None:
    """Not even this machine's loopback, where the store's servers listen."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        assert "Error" in tried(code)


def test_its_children_die_with_it(tmp_path: Path) -> None:
    """A child that left the session and the group is gone when the worker is."""
    code = (
        "import os, subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', sys.argv[1]],\n"
        "                 start_new_session=True)\n"
        "print('started', flush=True)\n"
        "import time; time.sleep(600)\n"
    )
    mark = f"child-of-{os.getpid()}-{time.monotonic_ns()}"
    command, _ = contained([sys.executable, "-I", "-c", code, mark], readable=())
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        assert running(mark)
        process.kill()
    deadline = time.monotonic() + 30
    while running(mark) and time.monotonic() < deadline:
        os.sched_yield()
    assert not running(mark)


def running(mark: str) -> bool:
    """Whether a process has this word in its command."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes() and path.parent.name != str(os.getpid()):
                return True
        except OSError:
            continue
    return False


def test_how_it_ended_is_told() -> None:
    """A crash in the sandbox is a crash, with its signal."""
    command, sandbox = contained(
        [sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"], readable=()
    )
    done = subprocess.run(command, check=False, capture_output=True)
    assert exit_status(done.returncode, sandbox) == -11
