"""The child process that holds a model: what is asked of it, and how one is started."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Protocol

from tasks.limits import expendable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# The code of a model's factory may run there: it is not lent the keys to the store and the server,
# which converting does not need. Sources may need theirs, such as HF_TOKEN.
_WITHHELD = (
    "AWS_",
    "MENAGERIE_POSTGRES",
    "MENAGERIE_SWIFT_",
    "PGPASS",
    "PREFECT_",
)


class Child(Protocol):
    """A `subprocess.Popen` with pipes of text in a group of its own, or something like it."""

    @property
    def pid(self) -> int | None:
        """Its number, and its group's; None: it has not begun."""

    @property
    def stdin(self) -> IO[str] | None:
        """What it reads."""

    @property
    def stdout(self) -> IO[str] | None:
        """What it answers."""

    def poll(self) -> int | None:
        """How it ended: a code, or a signal's negative number; None: it did not."""

    def wait(self) -> int:
        """Wait until it ends; how it did."""

    def kill(self) -> None:
        """End it and all that it started."""


class _Spawned(subprocess.Popen[str]):
    def kill(self) -> None:
        """End the whole group."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.killpg(self.pid, signal.SIGKILL)


def spawn(command: Sequence[str], log: Path) -> Child:
    """Start a process in a group of its own, whose errors go to a log file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        child = _Spawned(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            env=lent_environment(),
            start_new_session=True,
        )
    expendable(child.pid)
    return child


def lent_environment() -> dict[str, str]:
    """The environment without what the code of a model has no use for."""
    return {k: v for k, v in os.environ.items() if not k.startswith(_WITHHELD)}
