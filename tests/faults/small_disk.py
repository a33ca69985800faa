"""A disk of some megabytes that really fills up, in a mount namespace: it needs no root.

Only its owner may write there, as Menagerie asks of its home.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path

_MOUNT = 'mount -t tmpfs -o mode=700,size="$1"m small "$0" && echo mounted && exec cat'


class SmallDisk:
    """A tmpfs at `folder`, seen only by processes that are started with `prefix`.

    Args:
        folder: where it is mounted; made if it is missing.
        mebibytes: its size.
    """

    def __init__(self, folder: Path, mebibytes: int) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        namespaces = ("unshare", "--user", "--map-root-user", "--mount")
        self._holder = subprocess.Popen(
            [*namespaces, "sh", "-c", _MOUNT, str(folder), str(mebibytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        said = self._holder.stdout.readline()
        assert said == b"mounted\n", "no unprivileged mounts: kernel.unprivileged_userns_clone=1?"

    @property
    def prefix(self) -> tuple[str, ...]:
        """Words before a command that let it see the disk."""
        target = ("--target", str(self._holder.pid))
        return ("nsenter", *target, "--user", "--mount", "--preserve-credentials", "--")

    def run(self, *command: str) -> str:
        """What a command says that sees the disk."""
        done = subprocess.run([*self.prefix, *command], check=True, capture_output=True, text=True)
        return done.stdout

    def files(self) -> list[str]:
        """The paths of all files on it, below its folder."""
        return sorted(self.run("find", str(self.folder), "-type", "f", "-printf", "%P\n").split())

    def resize(self, mebibytes: int) -> None:
        """Make it larger or smaller; what is on it stays."""
        self.run("mount", "-o", f"remount,size={mebibytes}m", str(self.folder))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """It goes with the last process that sees it."""
        self._holder.communicate()
