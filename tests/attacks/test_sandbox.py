"""A library that is being proven reads no secrets, reaches no network and leaves nothing behind."""

from __future__ import annotations

import os
import platform
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bundle_maker import make_bundle

import menagerie
from menagerie.validation import kernel_sandbox, sandbox, validate
from menagerie.validation.sandbox import (
    BUBBLEWRAP,
    LANDLOCK,
    NO_SANDBOX,
    SANDBOX_EXEC,
    SECCOMP,
    contained,
    exit_status,
    mac_profile,
    sandbox_name,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes of Linux")
HERE = sandbox_name()  # the best; where it works, the lesser ones do
ALL = [BUBBLEWRAP, LANDLOCK, SECCOMP]


@pytest.fixture
def made_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Hides the sandboxes that are better than the one that the test names."""
    wanted: str = request.param
    if HERE not in ALL or ALL.index(wanted) < ALL.index(HERE):
        pytest.skip(f"the kernel allows no {wanted} here, but {HERE}")
    if wanted != BUBBLEWRAP:
        monkeypatch.setattr(sandbox, "_bubblewrap", lambda: None)
    if wanted == SECCOMP:
        monkeypatch.setattr(sandbox, "landlock_version", lambda: 0)
    assert sandbox_name() == wanted
    return wanted


every = pytest.mark.parametrize("made_by", ALL, indirect=True)
with_files = pytest.mark.parametrize("made_by", [BUBBLEWRAP, LANDLOCK], indirect=True)


def started(code: str, *arguments: object, readable: tuple[Path, ...] = ()) -> Sequence[str]:
    """The command that runs Python code in the sandbox."""
    words = [sys.executable, "-I", "-c", code, *map(str, arguments)]
    return contained(words, readable=readable)[0]


def environment() -> dict[str, str]:
    """As little as a validation gives."""
    return {"PATH": os.defpath, "PYTHONPATH": str(Path(menagerie.__file__).parents[1])}


def tried(code: str, *arguments: object, readable: tuple[Path, ...] = ()) -> str:
    """What Python code, in place of a library's constructor, prints in the sandbox."""
    done = subprocess.run(
        started(code, *arguments, readable=readable),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment(),
    )
    return (done.stdout + done.stderr).strip().splitlines()[-1]


@with_files
def test_it_reads_what_it_is_given_and_no_more(tmp_path: Path, made_by: str) -> None:
    """The bundle, but no file beside it, no home and no keys."""
    for name in ("bundle", "keys"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    bundle = tmp_path / "bundle"
    code = "import sys; print(open(sys.argv[1]).read())"
    assert tried(code, bundle / "file", readable=(bundle,)) == "bundle"
    absent = "FileNotFoundError" if made_by == BUBBLEWRAP else "PermissionError"
    assert absent in tried(code, tmp_path / "keys" / "file", readable=(bundle,))
    write = "import sys; open(sys.argv[1], 'w')"
    refused = "Read-only file system" if made_by == BUBBLEWRAP else "Permission denied"
    assert refused in tried(write, bundle / "file", readable=(bundle,))
    assert refused in tried(
        "import sys; open(sys.argv[1], 'x')", bundle / "new", readable=(bundle,)
    )
    assert (bundle / "file").read_text() == "bundle"


@every
def test_it_has_a_place_for_temporary_files(made_by: str) -> None:
    """Which goes with it."""
    code = "import tempfile; f = tempfile.NamedTemporaryFile(delete=False); print(f.name)"
    made = Path(tried(code))
    assert made.is_absolute(), made_by
    assert not made.exists()


@with_files
def test_it_reads_no_environment_of_others(made_by: str) -> None:
    """The caller has the keys of store and API in it."""
    said = tried(f"print(open('/proc/{os.getpid()}/environ').read())")
    assert ("FileNotFoundError" if made_by == BUBBLEWRAP else "PermissionError") in said


@every
def test_it_looks_into_no_other_process(made_by: str) -> None:
    """Neither by a debugger's calls nor by signals; itself it may signal."""
    attach = (
        "import ctypes, os, sys\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "done = libc.ptrace(16, int(sys.argv[1]), None, None)\n"
        "print(done, os.strerror(ctypes.get_errno()))"
    )
    assert tried(attach, os.getpid()).startswith("-1"), made_by
    signal = "import os, sys; os.kill(os.getpid(), 0); os.kill(int(sys.argv[1]), 0)"
    assert "Error" in tried(signal, os.getpid())


@pytest.mark.parametrize("made_by", [LANDLOCK, SECCOMP], indirect=True)
def test_it_makes_no_namespace_and_no_socket(made_by: str) -> None:
    """Nor a ring by which the kernel would open one for it; a thread and a child it may make."""
    calls = kernel_sandbox.SYSTEM_CALLS[platform.machine()]
    for name, first in (("unshare", 0x10000000), ("io_uring_setup", 1), ("socket", 1)):
        code = (
            "import ctypes, os\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            f"print(libc.syscall({calls[name]}, {first}, 1, 0), os.strerror(ctypes.get_errno()))"
        )
        assert tried(code) == "-1 Operation not permitted", (made_by, name)
    code = (
        "import subprocess, threading\n"
        "thread = threading.Thread(target=print)\nthread.start()\nthread.join()\n"
        "print(subprocess.run(['true']).returncode)"
    )
    assert tried(code) == "0"


@pytest.mark.parametrize(
    ("machine", "header"),
    [
        ("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        ("aarch64", "/usr/include/asm-generic/unistd.h"),
    ],
)
def test_calls_have_the_kernels_numbers(machine: str, header: str) -> None:
    """As its own headers define them, where the machine has these (Debian: linux-libc-dev)."""
    if not Path(header).is_file():
        pytest.skip("the kernel's headers are not installed")
    defined = dict(re.findall(r"#define __NR_(\w+)\s+(\d+)", Path(header).read_text()))
    known = kernel_sandbox.SYSTEM_CALLS[machine]
    assert {name: int(defined[name]) for name in known} == known
    assert known.keys() == kernel_sandbox.SYSTEM_CALLS["x86_64"].keys()


@pytest.mark.parametrize("made_by", ALL, indirect=True)
def test_the_verdict_says_what_contained_it(tmp_path: Path, made_by: str) -> None:
    """Also of what is refused; a worker works in each of them."""
    report = validate(make_bundle(tmp_path / "bundle"), allow_unsigned=True)
    assert report.sandbox == made_by
    assert report.detail
    assert "sandbox could not be made" not in report.detail
    assert "ImportError" not in report.detail


def test_a_macs_profile_names_what_it_forbids(tmp_path: Path) -> None:
    """Well-formed, whatever a folder is called; what it is given is allowed after the ban."""
    odd = tmp_path / 'a "b" \\c'
    odd.mkdir()
    lines = mac_profile([str(odd)], []).splitlines()
    assert lines[:3] == ["(version 1)", "(allow default)", "(deny network*)"]
    for line in lines:
        plain = re.sub(r'"(\\.|[^"\\])*"', "", line)
        assert plain.count("(") == plain.count(")")
        assert '"' not in plain
    [allowed] = [line for line in lines if line.startswith("(allow file-read-data")]
    assert '"' + str(odd.resolve()).replace("\\", "\\\\").replace('"', '\\"') + '"' in allowed
    assert lines.index(allowed) > next(
        i for i, x in enumerate(lines) if x.startswith("(deny file-r")
    )
    assert SANDBOX_EXEC not in {NO_SANDBOX, *ALL}


def test_a_mac_lends_no_cache_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it would write there, a later run outside the sandbox would load."""
    monkeypatch.setattr("menagerie.validation.sandbox.sandbox_name", lambda: SANDBOX_EXEC)
    cache, own = tmp_path / "cache", tmp_path / "own"
    command, _ = contained(["true"], readable=(), writable=(own,), layered=(cache,))
    [read] = [line for line in command[2].splitlines() if line.startswith("(allow file-read-data")]
    [written] = [line for line in command[2].splitlines() if line.startswith("(allow file-write*")]
    assert f'"{cache}"' in read
    assert f'"{own}"' in written
    assert f'"{cache}"' not in written


@pytest.mark.parametrize("made_by", [BUBBLEWRAP], indirect=True)
@pytest.mark.usefixtures("made_by")
def test_it_sees_no_other_process() -> None:
    """So that no environment can be read: the caller's has the keys of store and API."""
    code = "import os; print(sorted(p for p in os.listdir('/proc') if p.isdigit()))"
    assert tried(code) in {"['1', '2']", "['1', '2', '3']"}
    assert "FileNotFoundError" in tried("open('/proc/4/environ')")


@every
@pytest.mark.usefixtures("made_by")
def test_it_reaches_no_network() -> None:
    """Not even this machine's loopback, where the store's servers listen."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        assert "Error" in tried(code)


@every
def test_its_children_die_with_it(made_by: str) -> None:
    """A child that tried to leave the session and the group is gone when the worker is.

    A supervisor is ended by the signal that the kernel sends it when its caller dies, or, as
    `validate` does, by killing the group, which no process in it can leave.
    """
    code = (
        "import os, subprocess, sys\n"
        "sleeper = [sys.executable, '-c', 'import time; time.sleep(600)', sys.argv[1]]\n"
        "try:\n"
        "    subprocess.Popen(sleeper, start_new_session=True)\n"
        "except PermissionError:\n"
        "    subprocess.Popen(sleeper)\n"
        "print('started', flush=True)\n"
        "import time; time.sleep(600)\n"
    )
    ways = [subprocess.Popen.terminate, lambda each: os.killpg(each.pid, signal.SIGKILL)]
    for end in [subprocess.Popen.kill] if made_by == BUBBLEWRAP else ways:
        mark = f"child-of-{os.getpid()}-{time.monotonic_ns()}"
        command = started(code, mark)
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment(), start_new_session=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            assert running(mark)
            end(process)
        deadline = time.monotonic() + 30
        while running(mark) and time.monotonic() < deadline:
            os.sched_yield()
        assert not running(mark)


@pytest.mark.parametrize("made_by", [LANDLOCK, SECCOMP], indirect=True)
@pytest.mark.usefixtures("made_by")
def test_what_a_worker_leaves_behind_ends_with_it() -> None:
    """The supervisor waits for none of it: it kills them, also those of them that were orphaned."""
    mark = f"orphan-of-{os.getpid()}-{time.monotonic_ns()}"
    code = (
        "import subprocess, sys\n"
        "sleep = 'import time; time.sleep(600)'\n"
        'start = f\'import subprocess, sys; subprocess.Popen([sys.executable, "-c", {sleep!r}, '
        "sys.argv[1]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)'\n"
        "subprocess.run([sys.executable, '-c', start, sys.argv[1]])\n"
        "print('done')"
    )
    assert tried(code, mark) == "done"
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


@every
@pytest.mark.usefixtures("made_by")
def test_how_it_ended_is_reported() -> None:
    """A crash in the sandbox is a crash, with its signal."""
    command, name = contained(
        [sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"], readable=()
    )
    done = subprocess.run(command, check=False, capture_output=True, env=environment())
    assert exit_status(done.returncode, name) == -11
