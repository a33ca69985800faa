"""Landlock and seccomp, by which a process gives up rights for good, without privileges.

Landlock (https://docs.kernel.org/userspace-api/landlock.html) denies all files except those named;
a seccomp filter (https://man7.org/linux/man-pages/man2/seccomp.2.html) denies the system calls that
reach the network, other processes or new namespaces. Both persist across `exec` and apply to all
children. The numbers are those of the kernel's headers: `linux/landlock.h`,
`linux/seccomp.h`, `linux/filter.h`, `linux/audit.h`, `asm/unistd_64.h`, `asm-generic/unistd.h`.

The supervisor, which `menagerie.validation.sandbox` starts as ``python -m
menagerie.validation.kernel_sandbox ORDER COMMAND...``, runs a command under both and kills
everything that the command started. It makes a folder for the command's temporary files and for
copies of Menagerie's caches, and removes it afterwards. Like bubblewrap, it exits with 128 plus the
signal's number if a signal killed the command.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import shutil
import signal
import stat
import struct
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from menagerie import process
from menagerie.trust.roots import TRUST, trusted_place
from menagerie.validation.sandbox import BY_SIGNAL, landlock_version

# By architecture: its number in audit records, and the numbers of system calls.
_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
SYSTEM_CALLS: Final = {
    "x86_64": {
        "socket": 41, "clone": 56, "kill": 62, "ptrace": 101, "setpgid": 109, "setsid": 112,
        "rt_sigqueueinfo": 129, "pivot_root": 155, "chroot": 161, "mount": 165, "umount2": 166,
        "tkill": 200, "tgkill": 234, "add_key": 248, "request_key": 249, "keyctl": 250,
        "unshare": 272, "rt_tgsigqueueinfo": 297, "perf_event_open": 298,
        "open_by_handle_at": 304, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311,
        "kcmp": 312, "bpf": 321, "userfaultfd": 323, "pidfd_send_signal": 424,
        "io_uring_setup": 425, "open_tree": 428, "move_mount": 429, "fsopen": 430, "clone3": 435,
        "pidfd_getfd": 438, "mount_setattr": 442,
    },
    "aarch64": {
        "umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51, "unshare": 97, "ptrace": 117,
        "kill": 129, "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138, "setpgid": 154,
        "setsid": 157, "socket": 198, "add_key": 217, "request_key": 218, "keyctl": 219,
        "clone": 220, "rt_tgsigqueueinfo": 240, "perf_event_open": 241, "open_by_handle_at": 265,
        "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "bpf": 280,
        "userfaultfd": 282, "pidfd_send_signal": 424, "io_uring_setup": 425, "open_tree": 428,
        "move_mount": 429, "fsopen": 430, "clone3": 435, "pidfd_getfd": 438, "mount_setattr": 442,
    },
}  # fmt: skip
_SOME = ("clone", "clone3", "kill", "tgkill")  # these have rules of their own
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, -CGROUP, -UTS, -IPC, -USER, -PID, -NET
_X32 = 0x40000000  # system calls of the x32 ABI, with other numbers
_LOAD, _EQUAL, _AT_LEAST, _ANY_OF, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _FAIL, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _MACHINE, _FIRST = 0, 4, 16  # in seccomp_data; _FIRST: low half of the first argument
_CREATE, _ADD, _RESTRICT = 444, 445, 446  # landlock_*, on every architecture
_EXECUTE, _WRITE, _READ, _LIST, _TRUNCATE, _DEVICE = (1 << bit for bit in (0, 1, 2, 3, 14, 15))
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _DEVICE
_KNOWN = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}  # by version
_TCP, _SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _FILTER = 22, 38, 2
_PR_SET_CHILD_SUBREAPER = 36  # of prctl(2)
_DEVICES = ("null", "zero", "full", "random", "urandom")
_OWN = ("cpuinfo", "meminfo", "stat", "sys", "filesystems")  # of /proc, about no process


def give_up_files(
    readable: Iterable[Path], writable: Iterable[Path], devices: Iterable[Path]
) -> None:
    """Deny this process all files except those named; ignore names that do not exist.

    Readable files can be run too, writable paths are folders, and devices are special files. If the
    kernel's version supports it, signals to outside processes, their memory and TCP are denied too.
    Raise OSError if the kernel lacks or refuses Landlock.
    """
    version = landlock_version()
    handled = max((rights for least, rights in _KNOWN.items() if least <= version), default=0)
    scopes = _SCOPES if version >= 6 else 0  # noqa: PLR2004 - as numbered in the documentation
    tcp = _TCP if version >= 4 else 0  # noqa: PLR2004
    try:
        ruleset = _made(struct.pack("=QQQ", handled, tcp, scopes))
    except OSError:  # a distribution's kernel may report a version above its features
        ruleset = _made(struct.pack("=Q", handled))
    try:
        for rights, paths in (
            (_READ | _LIST | _EXECUTE, readable),
            (handled, writable),
            (_READ | _WRITE | _DEVICE | _TRUNCATE, devices),
        ):
            for path in paths:
                _add(ruleset, path, rights & handled)
        _no_new_privileges()
        _call("syscall", _RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


def _made(attributes: bytes) -> int:
    return _call("syscall", _CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)


def _add(ruleset: int, path: Path, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        rule = struct.pack("=Qi", rights if folder else rights & _OF_FILES, descriptor)
        _call("syscall", _ADD, ruleset, 1, rule, 0)
    finally:
        os.close(descriptor)


def give_up_calls() -> None:
    """Deny this process the system calls that reach the network or other processes.

    It can open no socket, signal only itself, leave neither its session nor its namespaces, and
    inspect no other process. Raise OSError if the machine is unknown or the kernel refuses.
    """
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no filter is known for {machine}")
    program = b"".join(_filter(machine))
    instructions = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(instructions))
    _no_new_privileges()
    _call("prctl", _PR_SET_SECCOMP, _FILTER, head, 0, 0)


def _filter(machine: str) -> list[bytes]:
    calls = SYSTEM_CALLS[machine]
    lines = [
        _line(_LOAD, _MACHINE),
        _line(_EQUAL, _ARCHITECTURES[machine], 1, 0),
        _line(_RETURN, _KILL),
        _line(_LOAD, _NUMBER),
        _line(_AT_LEAST, _X32, 0, 1),
        _line(_RETURN, _FAIL | errno.ENOSYS),
        _line(_EQUAL, calls["clone3"], 0, 1),
        _line(_RETURN, _FAIL | errno.ENOSYS),  # its flags are in memory; libc falls back to clone
        _line(_EQUAL, calls["clone"], 0, 4),
        _line(_LOAD, _FIRST),
        _line(_ANY_OF, _NEW_NAMESPACES, 0, 1),
        _line(_RETURN, _FAIL | errno.EPERM),
        _line(_RETURN, _ALLOW),
    ]
    for name in ("kill", "tgkill"):
        lines += [
            _line(_EQUAL, calls[name], 0, 4),
            _line(_LOAD, _FIRST),
            _line(_EQUAL, os.getpid(), 1, 0),
            _line(_RETURN, _FAIL | errno.EPERM),
            _line(_RETURN, _ALLOW),
        ]
    for name, number in calls.items():
        if name not in _SOME:
            lines += [_line(_EQUAL, number, 0, 1), _line(_RETURN, _FAIL | errno.EPERM)]
    return [*lines, _line(_RETURN, _ALLOW)]


def _line(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, value)


def _no_new_privileges() -> None:
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _call(function: str, *arguments: object) -> int:
    """Call a function of the C library; raise OSError if it fails."""
    result = int(getattr(ctypes.CDLL(None, use_errno=True), function)(*arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def main() -> int:
    """Run the command and return its exit status."""
    order, command = json.loads(sys.argv[1]), sys.argv[2:]
    process.end_with(order["caller"], signal.SIGTERM)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory(prefix="menagerie-sandbox-") as scratch:
        _prepare(Path(scratch), order["layered"])
        own, child = os.getpid(), os.fork()
        if child == 0:
            _become(command, order, Path(scratch), own)
        signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGKILL))
        os.closerange(3, 256)  # so that the caller's pipe closes with the command
        _, status = os.waitpid(child, 0)
        _end_the_rest()
    code = os.waitstatus_to_exitcode(status)
    return BY_SIGNAL - code if code < 0 else code


def _prepare(scratch: Path, layered: list[str]) -> None:
    """Make a temporary folder and a home with copies of the caches, which no other run sees."""
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
    """Give up rights and become the command; exit if that fails."""
    try:
        process.end_with(supervisor)
        if "files" in order["gives_up"]:
            own = os.open("/proc/self", os.O_PATH)  # kept open: the rule is for this very folder
            os.set_inheritable(own, True)
            readable = [*order["readable"], f"/proc/{os.getpid()}", *(f"/proc/{n}" for n in _OWN)]
            give_up_files(
                map(Path, readable),
                [scratch, *map(Path, order["writable"])],
                [Path("/dev", name) for name in _DEVICES],
            )
        give_up_calls()
        os.chdir("/")
        os.execvp(command[0], command)  # noqa: S606 - the caller's command
    except BaseException as error:  # noqa: BLE001 - it must not continue with more rights
        os.write(2, f"the sandbox could not be made: {error}\n".encode())
    os._exit(126)


def _end_the_rest() -> None:
    """Kill everything that the command left behind; orphans become children of this process."""
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
