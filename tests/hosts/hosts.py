"""Hosts on one machine: each has a network, a name, processes and a `/mnt` of its own.

The kernel's namespaces make them, which wants root. Cables between them can be pulled. What a host
keeps is under `/mnt`; no host sees what another has there, and the checkout can only be read.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
STATE = Path("/mnt")
_ENTER = """
set -e
hostname {name}
mount --make-rprivate /
mount --bind {folder} /mnt
mount -t tmpfs none {all}
mount --bind {checkout} {checkout}
mount -o remount,bind,ro {checkout}
mount -t tmpfs none /tmp
cd /mnt
exec env {own} "$@"
"""


def ip(*words: str) -> None:
    """iproute2's program."""
    subprocess.run(["ip", *words], check=True, capture_output=True)  # noqa: S607


class Network:
    """A switch that the first host is plugged into with the rest; ended by `close`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        folder.chmod(0o755)
        self.folder = folder
        self.hosts: dict[str, Host] = {}
        self._mark = f"m{os.getpid()}"
        self.space = f"{self._mark}-switch"
        ip("netns", "add", self.space)
        ip("-n", self.space, "link", "add", "switch", "type", "bridge")
        ip("-n", self.space, "link", "set", "switch", "up")

    def add(self, name: str, **environment: str) -> Host:
        """A host of that name; `environment`: what all its processes have."""
        number = len(self.hosts) + 1
        host = Host(name, f"10.77.0.{number}", f"{self._mark}-{name}", self, environment)
        ip("netns", "add", host.space)
        ends = ["type", "veth", "peer", "name", "eth0", "netns", host.space]
        ip("-n", self.space, "link", "add", name, *ends)
        ip("-n", self.space, "link", "set", name, "master", "switch", "up")
        ip("-n", host.space, "addr", "add", f"{host.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", host.space, "link", "set", device, "up")
        self.hosts[name] = host
        return host

    def close(self) -> None:
        """End all hosts."""
        for host in self.hosts.values():
            for name in list(host.processes):
                host.kill(name)
        for space in [*(host.space for host in self.hosts.values()), self.space]:
            with suppress(subprocess.CalledProcessError):
                ip("netns", "del", space)


class Host:
    """A computer, as its processes see it."""

    def __init__(
        self, name: str, address: str, space: str, network: Network, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self.address = address
        self.space = space
        self.folder = network.folder / name
        self.folder.mkdir()
        self.folder.chmod(0o755)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._network = network
        self._environment = {
            "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "LANG": "C.UTF-8",
            "HOME": str(STATE),
        }
        self._own = environment  # of what runs there, and not of what makes the place

    def _command(self, command: Sequence[str]) -> list[str]:
        places = {"folder": self.folder, "all": self._network.folder, "checkout": ROOT}
        quoted = {key: shlex.quote(str(place)) for key, place in places.items()}
        # It is process 1 of a namespace of its own: what it started ends with it.
        spaces = ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        own = " ".join(shlex.quote(f"{name}={value}") for name, value in self._own.items())
        enter = _ENTER.format(name=self.name, own=own, **quoted)
        return ["ip", "netns", "exec", self.space, *spaces, "sh", "-c", enter, "sh", *command]

    def start(self, name: str, command: Sequence[str], **environment: str) -> None:
        """Start a process; what it says goes to its log."""
        with self.log(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(
                self._command(command),
                env=self._environment | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def run(
        self, *command: str, seconds: float = 600.0, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            self._command(command),
            env=self._environment | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def log(self, name: str) -> Path:
        """What a process said."""
        return self.folder / f"{name}.log"

    def kill(self, name: str) -> None:
        """As a power cut does it: that process and all that it started, at once."""
        process = self.processes.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def pull_cable(self) -> None:
        """Nothing comes in or goes out, and no process is notified."""
        ip("-n", self._network.space, "link", "set", self.name, "down")

    def plug_in(self) -> None:
        """The network is as before."""
        ip("-n", self._network.space, "link", "set", self.name, "up")
