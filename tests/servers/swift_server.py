"""The S3 server of a local cluster, for tests: killed and started as often as a test wants.

Besides the product's listener it has one that speaks TLS.
"""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import trustme
from s3_rights import Key, Rights

from infra.local.cluster import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

ACCESS_KEY = "test:tester"
SECRET_KEY = "testing"  # noqa: S105 - the password of a server that lives for one test run
ONE_KEY = Rights("zoo", (Key(ACCESS_KEY, SECRET_KEY),))
START_SECONDS = 90.0
_MAIN = Path(__file__).with_name("s3_main.py")


@dataclass
class SwiftServer:
    """The running server; ``kill`` and ``start`` may follow each other as often as a test wants."""

    folder: Path
    rights: Rights = ONE_KEY
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        """Chooses ports and makes a certificate."""
        self.ports = dict(zip(("http", "tls"), free_ports(2), strict=True))
        self.ca_bundle, chain, key = make_certificate(self.folder / "tls")
        tls = f"{self.ports['tls']},{chain},{key}"
        self._command = command(self.folder, str(self.ports["http"]), tls)

    @property
    def http(self) -> str:
        """The endpoint without TLS."""
        return f"http://127.0.0.1:{self.ports['http']}"

    @property
    def tls(self) -> str:
        """The endpoint with TLS; its certificate is signed by ``ca_bundle``."""
        return f"https://localhost:{self.ports['tls']}"

    def start(self) -> None:
        """Starts it unless it runs, and waits until both proxies answer."""
        path = self.folder / "log"
        if self.process is None:
            with path.open("ab") as log:
                self.process = subprocess.Popen(
                    self._command,
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    env={**os.environ, **environment(self.rights)},
                )
        deadline = time.monotonic() + START_SECONDS
        while not (answers(self.http) and answers(self.tls, self.ca_bundle)):
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended: {path.read_text()[-2000:]}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.http} and {self.tls} do not answer")
            time.sleep(0.05)

    def kill(self) -> None:
        """Ends it with SIGKILL."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


def command(folder: Path, *places: str) -> list[str]:
    """How to start the server; each place is [ADDRESS:]PORT[,CHAIN,KEY]."""
    return [sys.executable, "-W", "ignore", str(_MAIN), str(folder), *places]


def environment(rights: Rights) -> dict[str, str]:
    """What the process needs."""
    settings = {"EVENTLET_NO_GREENDNS": "yes", "TZ": "UTC"}
    return {**settings, "MENAGERIE_SWIFT_RIGHTS": rights.to_json()}


def answers(endpoint: str, authority: Path | None = None) -> bool:
    """Whether a proxy gives a sign of life; over TLS only with a certificate of `authority`."""
    tls = None if authority is None else ssl.create_default_context(cafile=str(authority))
    try:
        with urllib.request.urlopen(f"{endpoint}/healthcheck", timeout=5, context=tls):  # noqa: S310
            return True
    except OSError:  # URLError and all of ssl's are such
        return False


def running(folder: Path, *rights: Rights) -> Iterator[SwiftServer]:
    """Starts a server under `folder`, yields it, and ends it; without `rights` one key may all."""
    server = SwiftServer(folder, *rights)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def make_certificate(folder: Path) -> tuple[Path, Path, Path]:
    """An authority's certificate, one that it signed for this host, and the key of that."""
    folder.mkdir(parents=True)
    authority = trustme.CA(organization_name="A test's")
    issued = authority.issue_cert("localhost", "127.0.0.1")
    chain, key = folder / "server.pem", folder / "server.key"
    key.touch(mode=0o600)
    issued.private_key_pem.write_to_path(key)
    for blob in issued.cert_chain_pems:
        blob.write_to_path(chain, append=True)
    authority.cert_pem.write_to_path(folder / "ca.pem")
    return folder / "ca.pem", chain, key
