"""A real S3 server for tests: OpenStack Swift with its s3api, on loopback, without root.

Five processes (account, container, object server, one proxy for HTTP and one for TLS) over one
folder. Swift needs a file system with extended attributes; ext4, xfs, btrfs and Linux's tmpfs have
them.
"""

from __future__ import annotations

import getpass
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trustme

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ACCESS_KEY = "test:tester"
SECRET_KEY = "testing"  # noqa: S105 - the password of a server that lives for one test run
START_SECONDS = 90.0

_COMMON = """[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
user = {user}
log_level = WARNING
log_address = {folder}/no-syslog
conn_timeout = 30
node_timeout = 60
container_update_timeout = 60
recon_cache_path = {folder}/cache
"""

_STORAGE = """
[pipeline:main]
pipeline = {kind}-server

[app:{kind}-server]
use = egg:swift#{kind}
"""

_TLS = """cert_file = {folder}/server.pem
key_file = {folder}/key.pem
"""

_PROXY = """
[pipeline:main]
pipeline = catch_errors healthcheck cache listing_formats s3api tempauth slo dlo proxy-server

[app:proxy-server]
use = egg:swift#proxy
allow_account_management = true
account_autocreate = true

[filter:catch_errors]
use = egg:swift#catch_errors

[filter:healthcheck]
use = egg:swift#healthcheck

[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:1

[filter:listing_formats]
use = egg:swift#listing_formats

[filter:s3api]
use = egg:swift#s3api
location = us-east-1

[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin .reseller_admin

[filter:slo]
use = egg:swift#slo

[filter:dlo]
use = egg:swift#dlo
"""

_SWIFT_CONF = """[swift-hash]
swift_hash_path_suffix = menagerie
swift_hash_path_prefix = tests

[storage-policy:0]
name = one
default = yes
"""

# one replica on one device: the smallest ring there is
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

# on Linux the kernel ends the server when the test process dies, however it dies
_SERVER = """
import ctypes, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
from {module} import main
sys.argv[1:] = [{conf!r}]
sys.exit(main())
"""


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@dataclass
class SwiftServer:
    """The running server; ``kill`` and ``start`` may follow each other as often as a test wants."""

    folder: Path
    ports: dict[str, int] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Writes certificates, rings and configuration files."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("devices/d1", "cache"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        kinds = ("account", "container", "object", "http", "tls")
        self.ports = dict(zip(kinds, free_ports(len(kinds)), strict=True))
        self._write_certificates()
        (self.folder / "swift.conf").write_text(_SWIFT_CONF)
        self._write_rings()
        for kind in ("account", "container", "object"):
            self._write_conf(kind, _STORAGE.format(kind=kind))
        self._write_conf("http", _PROXY)
        self._write_conf("tls", _TLS.format(folder=self.folder) + _PROXY)

    @property
    def http(self) -> str:
        """The endpoint without TLS."""
        return f"http://127.0.0.1:{self.ports['http']}"

    @property
    def tls(self) -> str:
        """The endpoint with TLS; its certificate is signed by ``ca_bundle``."""
        return f"https://localhost:{self.ports['tls']}"

    @property
    def ca_bundle(self) -> Path:
        """The certificate authority, a PEM file."""
        return self.folder / "ca.pem"

    def _write_certificates(self) -> None:
        authority = trustme.CA()
        certificate = authority.issue_cert("localhost", "127.0.0.1")
        authority.cert_pem.write_to_path(self.ca_bundle)
        chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
        (self.folder / "server.pem").write_bytes(chain)
        certificate.private_key_pem.write_to_path(self.folder / "key.pem")

    def _write_conf(self, kind: str, rest: str) -> None:
        common = _COMMON.format(port=self.ports[kind], folder=self.folder, user=getpass.getuser())
        (self.folder / f"{kind}.conf").write_text(common + rest)

    def _write_rings(self) -> None:
        """In a process of its own: Swift brings eventlet, which must not meet a test's threads."""
        ports = [f"{kind}={self.ports[kind]}" for kind in ("account", "container", "object")]
        command = [sys.executable, "-W", "ignore", "-c", _RINGS, str(self.folder), *ports]
        subprocess.run(command, check=True)

    def start(self) -> None:
        """Starts whatever does not run and waits until both proxies answer."""
        for kind in self.ports:
            if kind not in self.processes:
                self.processes[kind] = self._spawn(kind)
        deadline = time.monotonic() + START_SECONDS
        for endpoint in (self.http, self.tls):
            self._await(endpoint, deadline)

    def _spawn(self, kind: str) -> subprocess.Popen[bytes]:
        program = "proxy" if kind in ("http", "tls") else kind
        module = f"swift.{'obj' if program == 'object' else program}.server"
        conf = str(self.folder / f"{kind}.conf")
        code = _SERVER.format(module=module, conf=conf)
        with (self.folder / f"{kind}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", code],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "EVENTLET_NO_GREENDNS": "yes"},
            )

    def _await(self, endpoint: str, deadline: float) -> None:
        context = ssl.create_default_context(cafile=str(self.ca_bundle))
        secure = {"context": context} if endpoint.startswith("https") else {}
        while time.monotonic() < deadline:
            for kind, process in self.processes.items():
                if process.poll() is not None:
                    log = (self.folder / f"{kind}.log").read_text()[-2000:]
                    raise RuntimeError(f"swift's {kind} server ended: {log}")
            try:
                with urllib.request.urlopen(f"{endpoint}/healthcheck", timeout=5, **secure):  # noqa: S310
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        raise TimeoutError(f"{endpoint} does not answer")

    def kill(self, *kinds: str) -> None:
        """Ends the named processes (all, if none is named) with SIGKILL."""
        for kind in kinds or tuple(self.processes):
            process = self.processes.pop(kind)
            process.send_signal(signal.SIGKILL)
            process.wait()


def running(folder: Path) -> Iterator[SwiftServer]:
    """Starts a server under `folder`, yields it, and ends it."""
    server = SwiftServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()
