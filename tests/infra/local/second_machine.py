"""A second machine that joins a local cluster by the commands of docs/service.md.

It has a home and, where others may run this Python, a user of its own. It shares HTTP and S3 alone.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from s3_rights import Key, Rights
from swift_server import command, environment

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
NAME = "guest linux-cpu"
GUEST = Key("menagerie:guest", "of-a-guest", "worker-policy")


@contextmanager
def rights(folder: Path, port: int, owner: Key, log: Path) -> Iterator[None]:
    """The cluster's S3 server, with a key beside the owner's that has a worker's rights alone."""
    given = environment(Rights("menagerie", (owner, GUEST)))
    with log.open("ab") as output:
        server = subprocess.Popen(
            command(folder, str(port)), env=os.environ | given, stdout=output, stderr=output
        )
    try:
        yield
    finally:
        server.kill()
        server.wait()


class SecondMachine:
    """Its home, its settings and its worker, which is started and killed."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="second-machine-"))
        self._user: dict[str, Any] = _other_user()
        if self._user:
            os.chown(self.home, self._user["user"], self._user["group"])
        example = (ROOT / "infra" / "container" / "worker.env.example").read_text()
        lines = [line for line in example.splitlines() if line and line[0] != "#"]
        known = dict(line.split("=", 1) for line in lines) | settings
        written = "".join(f"{name}={value}\n" for name, value in known.items())
        (self.home / "worker.env").write_text(written)
        text = (ROOT / "docs" / "service.md").read_text()
        [block] = [b for b in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) if "worker.env" in b]
        _, settle, begin = block.splitlines()
        settle = settle.partition("; zoo doctor")[0]
        self._script = f"{settle}\nexec {begin.replace('$(hostname)', 'guest')}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """By the page's commands, in an environment with nothing else."""
        own = {"HOME": str(self.home), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
        with (self.home / "worker.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["/bin/bash", "-euc", self._script],
                cwd=self.home,
                env=own,
                stdout=log,
                stderr=log,
                **self._user,
            )

    def kill(self) -> None:
        """End the worker and all that it started at once, as when the machine is lost."""
        if self._process is not None:
            kill_family(self._process.pid)
            self._process.wait()

    def end(self) -> None:
        """Leave nothing."""
        self.kill()
        shutil.rmtree(self.home)


def kill_family(pid: int) -> None:
    """SIGKILL to a process and its descendants."""
    process = psutil.Process(pid)
    for each in [process, *process.children(recursive=True)]:
        with suppress(ProcessLookupError):
            os.kill(each.pid, signal.SIGKILL)


def _other_user() -> dict[str, Any]:
    """Arguments for a process of another user; none where that user cannot run this Python."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    with suppress(OSError):
        subprocess.run([sys.executable, "-c", "import torch, flows"], check=True, **user)
        return user
    return {}
