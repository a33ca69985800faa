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

from flows.cluster.private_file import write_private
from zoo.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flows.cluster.certificates import Certificate

__all__ = ["PROXY", "STORAGE", "SwiftServer", "answers"]

STORAGE = ("account", "container", "object")
PROXY = "proxy"
_SECRET_VARIABLE = "MENAGERIE_SWIFT_SECRET"  # noqa: S105 - read by `swift_auth`
_ANSWER_SECONDS = 5.0

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

_TLS = """cert_file = {chain}
key_file = {key}
"""

_STORAGE = """
[pipeline:main]
pipeline = {kind}-server

[app:{kind}-server]
use = egg:swift#{kind}
"""

# tempauth gets its one user from the environment: no secret stands in a file of Swift's.
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
paste.filter_factory = flows.cluster.swift_auth:filter_factory
key_name = {access_key}

[filter:slo]
use = egg:swift#slo

[filter:dlo]
use = egg:swift#dlo
"""

_SWIFT_CONF = """[swift-hash]
swift_hash_path_suffix = loopback
swift_hash_path_prefix = menagerie

[storage-policy:0]
name = one
default = yes
"""

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
            UsageError: if Swift is not installed.
        """
        if importlib.util.find_spec("swift") is None:
            advice = "Run `pip install 'menagerie[cluster]'`"
            raise UsageError("OpenStack Swift", "is not installed", advice)
        for name in ("devices/d1", "cache"):
            (self.folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        files = {f"{name}.conf": self._configuration(name) for name in self.ports}
        files["swift.conf"] = _SWIFT_CONF
        stale = {n: text for n, text in files.items() if not _holds(self.folder / n, text)}
        if stale or not all((self.folder / f"{kind}.ring.gz").exists() for kind in STORAGE):
            self._write_rings()  # first: a conf file that is there says that all before it is
        for name, text in stale.items():
            write_private(self.folder / name, text)

    def command(self, name: str) -> list[str]:
        """How to start one process of the server."""
        program = name if name in STORAGE else PROXY
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
        port, user = self.ports[name], getpass.getuser()
        text = _COMMON.format(port=port, folder=self.folder, user=user)
        if (certificate := self.certificates.get(name)) is not None:
            text += _TLS.format(chain=certificate.chain, key=certificate.key)
        if name in STORAGE:
            return text + _STORAGE.format(kind=name)
        return text + _PROXY.format(access_key=self.access_key)

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
