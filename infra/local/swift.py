"""A real S3 server without root: OpenStack Swift with its s3api, on loopback.

An account, a container and an object server over one folder, and a proxy that speaks S3. The folder
needs a file system with extended attributes; ext4, xfs, btrfs and Linux's tmpfs have them.
"""

from __future__ import annotations

import getpass
import importlib.util
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flows.local_cluster import write_private
from zoo.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["STORAGE", "Certificate", "SwiftServer", "answers", "ensure_certificate"]

STORAGE = ("account", "container", "object")
_SECRET_VARIABLE = "MENAGERIE_SWIFT_SECRET"  # noqa: S105 - read by `swift_auth`
_ANSWER_SECONDS = 5.0
_CONF = Path(__file__).with_name("swift_conf")
_TLS = "cert_file = {0.chain}\nkey_file = {0.key}\n"

# One replica on one device: the smallest ring there is.
_RINGS = """
import sys
from swift.common.ring import RingBuilder
for kind, port in (pair.split("=") for pair in sys.argv[2:]):
    builder = RingBuilder(2, 1, 0)
    builder.add_dev({
        "id": 0, "region": 1, "zone": 1, "weight": 1.0, "device": "d1", "meta": "",
        "ip": "127.0.0.1", "port": int(port),
        "replication_ip": "127.0.0.1", "replication_port": int(port),
    })
    builder.rebalance()
    builder.get_ring().save(f"{sys.argv[1]}/{kind}.ring.gz")
"""


@dataclass(frozen=True)
class Certificate:
    """PEM files: what clients trust, what the server shows, and its key."""

    authority: Path
    chain: Path
    key: Path


def ensure_certificate(folder: Path) -> Certificate:
    """The certificate for `localhost` and 127.0.0.1 in `folder`, made where there is none.

    The key of the authority that signs it is never written: nobody can ever sign another one.
    """
    files = Certificate(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    if all(path.exists() for path in (files.authority, files.chain, files.key)):
        return files
    try:
        import trustme
    except ImportError:
        advice = "Run `pip install 'menagerie-zoo[cluster]'`"
        raise UsageError("trustme", "is not installed", advice) from None
    authority = trustme.CA(organization_name="Menagerie's local cluster")
    issued = authority.issue_cert("localhost", "127.0.0.1")
    write_private(files.key, issued.private_key_pem.bytes().decode())
    write_private(files.chain, "".join(blob.bytes().decode() for blob in issued.cert_chain_pems))
    write_private(files.authority, authority.cert_pem.bytes().decode())  # last: all is there
    return files


@dataclass(frozen=True)
class SwiftServer:
    """Where the server lies, listens and whom it knows.

    Attributes:
        folder: its configuration and its data.
        ports: of "account", "container", "object", and of each proxy by whatever name.
        access_key: its one user, as account:user.
        certificates: of the proxies that speak TLS, by name.
    """

    folder: Path
    ports: Mapping[str, int]
    access_key: str
    certificates: Mapping[str, Certificate]

    def prepare(self) -> None:
        """Write configuration and rings, where they are not written for these ports yet.

        Raises:
            UsageError: if Swift is not installed, as on macOS, where there is none.
        """
        if importlib.util.find_spec("swift") is None:
            advice = "On Linux run `pip install 'menagerie-zoo[cluster]'`"
            raise UsageError("OpenStack Swift", "is not installed", advice)
        for name in ("devices/d1", "cache"):
            (self.folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        files = {f"{name}.conf": self._configuration(name) for name in self.ports}
        files["swift.conf"] = (_CONF / "swift.conf").read_text()
        stale = {n: text for n, text in files.items() if not _holds(self.folder / n, text)}
        if stale:
            self._write_rings()  # first: a conf file that is there says that all before it is
        for name, text in stale.items():
            write_private(self.folder / name, text)

    def command(self, name: str) -> list[str]:
        """How to start one process of the server."""
        program = name if name in STORAGE else "proxy"
        # As a file and not a module: three of four then need nothing of Menagerie. -P keeps this
        # folder off the path, where a `swift` lies that is not Swift.
        node = str(Path(__file__).with_name("swift_node.py"))
        conf = str(self.folder / f"{name}.conf")
        return [sys.executable, "-P", "-W", "ignore", node, program, conf]

    def environment(self, name: str, secret: str) -> dict[str, str]:
        """What that process needs; only proxies know the secret."""
        known = {} if name in STORAGE else {_SECRET_VARIABLE: secret}
        return {"EVENTLET_NO_GREENDNS": "yes", **known}

    def _configuration(self, name: str) -> str:
        certificate = self.certificates.get(name)
        tls = "" if certificate is None else _TLS.format(certificate)
        text = (_CONF / f"{'storage' if name in STORAGE else 'proxy'}.conf").read_text()
        return text.format(
            kind=name,
            port=self.ports[name],
            folder=self.folder,
            user=getpass.getuser(),
            access_key=self.access_key,
            tls=tls,
        )

    def _write_rings(self) -> None:
        """In a process of its own: Swift brings eventlet, which must not meet our threads."""
        ports = [f"{kind}={self.ports[kind]}" for kind in STORAGE]
        command = [sys.executable, "-P", "-W", "ignore", "-c", _RINGS, str(self.folder), *ports]
        subprocess.run(command, check=True, env={**os.environ, "EVENTLET_NO_GREENDNS": "yes"})


def answers(endpoint: str, authority: Path | None = None) -> bool:
    """Whether a proxy gives a sign of life; over TLS only with a certificate of `authority`."""
    tls = None if authority is None else ssl.create_default_context(cafile=str(authority))
    try:
        with urllib.request.urlopen(  # noqa: S310 - http(s), and ours
            f"{endpoint}/healthcheck", timeout=_ANSWER_SECONDS, context=tls
        ):
            return True
    except OSError:  # URLError and all of ssl's are such
        return False


def _holds(path: Path, text: str) -> bool:
    try:
        return path.read_text() == text
    except FileNotFoundError:
        return False
