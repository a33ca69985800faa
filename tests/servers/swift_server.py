"""The S3 server of a local cluster, for tests: killed and started as often as a test wants.

Five processes over one folder: besides the product's, a proxy that speaks no TLS.
"""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import time
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trustme

from infra.local import swift
from infra.local.processes import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ACCESS_KEY = "test:tester"
SECRET_KEY = "testing"  # noqa: S105 - the password of a server that lives for one test run
START_SECONDS = 90.0


@dataclass
class SwiftServer:
    """The running server; ``kill`` and ``start`` may follow each other as often as a test wants."""

    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Writes certificates, rings and configuration files."""
        names = (*swift.STORAGE, "http", "tls")
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.ca_bundle, certificate = make_certificate(self.folder / "tls")
        self._server = swift.SwiftServer(
            self.folder, self.ports, ACCESS_KEY, certificates={"tls": certificate}
        )
        self._server.prepare()

    @property
    def http(self) -> str:
        """The endpoint without TLS."""
        return f"http://127.0.0.1:{self.ports['http']}"

    @property
    def tls(self) -> str:
        """The endpoint with TLS; its certificate is signed by ``ca_bundle``."""
        return f"https://localhost:{self.ports['tls']}"

    def start(self) -> None:
        """Starts whatever does not run and waits until both proxies answer."""
        for name in self.ports:
            if name not in self.processes:
                self.processes[name] = self._spawn(name)
        deadline = time.monotonic() + START_SECONDS
        while not (answers(self.http) and answers(self.tls, self.ca_bundle)):
            for name, process in self.processes.items():
                if process.poll() is not None:
                    log = (self.folder / f"{name}.log").read_text()[-2000:]
                    raise RuntimeError(f"swift's {name} server ended: {log}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.http} and {self.tls} do not answer")
            time.sleep(0.05)

    def _spawn(self, name: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [*self._server.command(name), "with-parent"],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **self._server.environment(name, SECRET_KEY)},
            )

    def kill(self, *names: str) -> None:
        """Ends the named processes (all, if none is named) with SIGKILL."""
        for name in names or tuple(self.processes):
            process = self.processes.pop(name)
            process.send_signal(signal.SIGKILL)
            process.wait()


def answers(endpoint: str, authority: Path | None = None) -> bool:
    """Whether a proxy gives a sign of life; over TLS only with a certificate of `authority`."""
    tls = None if authority is None else ssl.create_default_context(cafile=str(authority))
    try:
        with urllib.request.urlopen(f"{endpoint}/healthcheck", timeout=5, context=tls):  # noqa: S310
            return True
    except OSError:  # URLError and all of ssl's are such
        return False


def running(folder: Path) -> Iterator[SwiftServer]:
    """Starts a server under `folder`, yields it, and ends it."""
    server = SwiftServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def make_certificate(folder: Path) -> tuple[Path, swift.Certificate]:
    """An authority's certificate, and one that it signed for this host."""
    folder.mkdir(parents=True)
    authority = trustme.CA(organization_name="A test's")
    issued = authority.issue_cert("localhost", "127.0.0.1")
    files = swift.Certificate(folder / "server.pem", folder / "server.key")
    files.key.touch(mode=0o600)
    issued.private_key_pem.write_to_path(files.key)
    for blob in issued.cert_chain_pems:
        blob.write_to_path(files.chain, append=True)
    authority.cert_pem.write_to_path(folder / "ca.pem")
    return folder / "ca.pem", files
