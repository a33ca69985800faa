"""Runs a command under Landlock and seccomp, and ends all that it has started.

Started by `menagerie.validation.sandbox` as ``python -m menagerie.validation.supervisor ORDER
COMMAND...``. It makes a folder for the command's temporary files and copies of Menagerie's caches,
which go with it; whatever the command has started is killed when it ends. Like bubblewrap it says
of a command that was killed by a signal: 128 and the signal's number.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from menagerie import parent
from menagerie.trust.policy import TRUST, trusted_place
from menagerie.validation.kernel_sandbox import give_up_calls, give_up_files

__all__ = ["main"]

_PR_SET_CHILD_SUBREAPER = 36  # of prctl(2)
_BY_SIGNAL = 128
_DEVICES = ("null", "zero", "full", "random", "urandom")
_OWN = ("cpuinfo", "meminfo", "stat", "sys", "filesystems")  # of /proc, what tells of no process


def main() -> int:
    """Runs the command and returns how it ended."""
    order, command = json.loads(sys.argv[1]), sys.argv[2:]
    parent.end_with(order["caller"], signal.SIGTERM)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory(prefix="menagerie-sandbox-") as scratch:
        _prepare(Path(scratch), order["layered"])
        own, child = os.getpid(), os.fork()
        if child == 0:
            _become(command, order, Path(scratch), own)
        signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGKILL))
        os.closerange(3, 256)  # the caller sees its pipe end with the command
        _, status = os.waitpid(child, 0)
        _end_the_rest()
    code = os.waitstatus_to_exitcode(status)
    return _BY_SIGNAL - code if code < 0 else code


def _prepare(scratch: Path, layered: list[str]) -> None:
    """A home and a place for temporary files; caches are copied, so that no other run sees them."""
    (scratch / "tmp").mkdir()
    trusted = trusted_place()
    for folder in map(Path, layered):
        with suppress(OSError, shutil.Error):
            shutil.copytree(folder, scratch / folder.name, symlinks=True)
    os.environ |= {
        TRUST: str(trusted),
        "MENAGERIE_HOME": str(scratch),
        "TMPDIR": str(scratch / "tmp"),
    }


def _become(command: list[str], order: dict[str, Any], scratch: Path, supervisor: int) -> None:
    """Gives up rights and is the command from then on; ends this process where it cannot."""
    try:
        parent.end_with(supervisor)
        if "files" in order["gives_up"]:
            own = os.open("/proc/self", os.O_PATH)  # kept open, its rule is of this very folder
            os.set_inheritable(own, True)
            readable = [*order["readable"], f"/proc/{os.getpid()}", *(f"/proc/{n}" for n in _OWN)]
            give_up_files(
                map(Path, readable),
                [scratch, *map(Path, order["writable"])],
                [Path("/dev", name) for name in _DEVICES],
            )
        give_up_calls()
        os.chdir("/")
        os.execvp(command[0], command)  # noqa: S606 - what the caller has made
    except BaseException as error:  # noqa: BLE001 - it must not go on with more rights
        os.write(2, f"the sandbox could not be made: {error}\n".encode())
    os._exit(126)


def _end_the_rest() -> None:
    """Kills what the command has left behind: orphans become children of this process."""
    while True:
        with suppress(OSError):
            for path in Path("/proc/self/task").glob("*/children"):
                for child in path.read_text().split():
                    os.kill(int(child), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


if __name__ == "__main__":
    sys.exit(main())
