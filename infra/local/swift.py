"""A real S3 server without root: OpenStack Swift with its s3api, on loopback.

An account, a container and an object server over one folder, and a proxy that speaks S3. The folder
needs a file system with extended attributes; ext4, xfs, btrfs and Linux's tmpfs have them.
"""

from __future__ import annotations

import getpass
import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flows.local_cluster import write_private
from zoo.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["STORAGE", "Certificate", "SwiftServer"]

STORAGE = ("account", "container", "object")
_CONF = Path(__file__).with_name("swift_conf")
_INSTALL = "Run `pip install 'menagerie-zoo[cluster]'`"
# As a file and not a module: three of four processes then need nothing of Menagerie. -P keeps this
# folder off the path, where a `swift` lies that is not Swift.
_NODE = [sys.executable, "-P", "-W", "ignore", str(Path(__file__).with_name("swift_node.py"))]
_NO_DNS = {"EVENTLET_NO_GREENDNS": "yes"}


@dataclass(frozen=True)
class Certificate:
    """PEM files: what the server shows, and its key."""

    chain: Path
    key: Path


@dataclass(frozen=True)
class SwiftServer:
    """Where the server lies, listens and whom it knows.

    Attributes:
        folder: its configuration and its data.
        ports: of "account", "container", "object", and of each proxy by whatever name.
        access_key: its one user, as account:user.
        certificates: of the proxies that speak TLS, by name; on loopback none needs to.
    """

    folder: Path
    ports: Mapping[str, int]
    access_key: str
    certificates: Mapping[str, Certificate] = field(default_factory=dict)

    def prepare(self) -> None:
        """Write configuration and rings for these ports; to processes that run they are the same.

        Raises:
            UsageError: if Swift is not installed, as on macOS, where there is none.
        """
        if importlib.util.find_spec("swift") is None:
            raise UsageError("OpenStack Swift", "is not installed", f"On Linux: {_INSTALL}")
        for name in ("devices/d1", "cache"):
            (self.folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(self.folder / "swift.conf", (_CONF / "swift.conf").read_text())
        for name, port in self.ports.items():
            files = self.certificates.get(name)
            tls = f"cert_file = {files.chain}\nkey_file = {files.key}\n" if files else ""
            text = (_CONF / f"{'storage' if name in STORAGE else 'proxy'}.conf").read_text()
            text = text.format(
                kind=name,
                port=port,
                folder=self.folder,
                user=getpass.getuser(),
                access_key=self.access_key,
                tls=tls,
            )
            write_private(self.folder / f"{name}.conf", text)
        # In a process of its own: Swift brings eventlet, which must not meet our threads.
        ports = [f"{kind}={self.ports[kind]}" for kind in STORAGE]
        command = [*_NODE, "rings", str(self.folder), *ports]
        subprocess.run(command, check=True, env={**os.environ, **_NO_DNS})

    def command(self, name: str) -> list[str]:
        """How to start one process of the server."""
        program = name if name in STORAGE else "proxy"
        return [*_NODE, program, str(self.folder / f"{name}.conf")]

    def environment(self, name: str, secret: str) -> dict[str, str]:
        """What that process needs; only proxies know the secret."""
        return _NO_DNS if name in STORAGE else {**_NO_DNS, "MENAGERIE_SWIFT_SECRET": secret}
