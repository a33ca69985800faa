"""A real S3 server without root, in one process: OpenStack Swift with its s3api.

`python -m infra.local.s3_server FOLDER PORT` serves on loopback, with the keys in the environment.
Swift's account, container and object servers answer anyone without authentication, so they listen
on sockets in FOLDER that other users cannot open.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import eventlet
from eventlet import wsgi
from eventlet.green import socket
from eventlet.hubs import use_hub
from swift.common import bufferedhttp, utils
from swift.common.constraints import MAX_REQUEST_LINE
from swift.common.middleware import tempauth
from swift.common.ring import RingBuilder
from swift.common.swob import Request
from swift.common.wsgi import ConfigString, SwiftHttpProtocol, loadapp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KEYS = "MENAGERIE_SWIFT_KEYS"  # JSON: secrets by name

_INNER = ("account", "container", "object")
_OUTER = "catch_errors gatekeeper healthcheck memcache listing_formats s3api tempauth copy slo dlo"
_PROXY = f"[pipeline:main]\npipeline = {_OUTER} proxy-server\n"  # behind what speaks S3
_PROXY += "[app:proxy-server]\nuse = egg:swift#proxy\n"
_PROXY += "".join(f"[filter:{each}]\nuse = egg:swift#{each}\n" for each in _OUTER.split())
_SETTINGS = {
    "mount_check": "false",
    "log_level": "WARNING",
    "log_address": "no-syslog",
    "conn_timeout": "30",
    "node_timeout": "60",
    "container_update_timeout": "60",
    "account_autocreate": "true",
    "memcache_servers": "127.0.0.1:1",  # Swift asks for one; S3 does without
}
_HASHES = "[swift-hash]\nswift_hash_path_suffix = loopback\nswift_hash_path_prefix = menagerie\n"


def listen(port: int, address: str = "127.0.0.1") -> Any:
    """A listener for `serve`."""
    return eventlet.listen((address, port), backlog=4096, reuse_port=False)


def serve(folder: Path, keys: Mapping[str, str], listeners: Iterable[Any]) -> None:
    """Serve S3 until a signal ends the process.

    Args:
        folder: of the data; its file system has extended attributes, as ext4, xfs, btrfs and
            Linux's tmpfs have.
        keys: secrets by name, account:user. Each may do everything, and others nothing.
        listeners: made by `listen`, or such in TLS.
    """
    os.umask(0o077)
    (folder / "devices" / "d1").mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    os.chdir(folder)  # the names of sockets must be short
    use_hub("poll")  # as Swift does
    utils.monkey_patch()
    Path("swift.conf").write_text(_HASHES)
    utils.set_swift_dir(str(folder))
    bufferedhttp.BufferedHTTPConnection = _InnerConnection
    tempauth.TempAuth = _ForS3
    places = {"swift_dir": folder, "devices": folder / "devices", "recon_cache_path": folder}
    settings = _SETTINGS | {name: str(path) for name, path in places.items()}
    servers = []
    for port, kind in enumerate(_INNER, 1):
        _write_ring(f"{kind}.ring.gz", port)
        Path(_socket(port)).unlink(missing_ok=True)  # of the last time
        listener = eventlet.listen(_socket(port), family=socket.AF_UNIX, backlog=4096)
        inner = ConfigString(f"[app:main]\nuse = egg:swift#{kind}\n")
        servers.append(_spawn(listener, loadapp(inner, settings)))
    users = {f"user_{name.replace(':', '_')}": f"{secret} .admin" for name, secret in keys.items()}
    # a text and not a file: a path may have letters that addresses of Paste's have not
    proxy = loadapp(ConfigString(_PROXY), settings | users, allow_modify_pipeline=False)
    servers += [_spawn(listener, proxy) for listener in listeners]
    for server in servers:
        server.wait()


class _InnerConnection(bufferedhttp.BufferedHTTPConnection):  # type: ignore[misc]
    def connect(self) -> None:
        self._connected_time = time.time()
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(_socket(self.port))


class _ForS3(tempauth.TempAuth):  # type: ignore[misc]
    """Gives no token: Swift's own API would be a second way in."""

    def handle(self, env: dict[str, Any], start_response: Any) -> Any:
        return self.denied_response(Request(env))(env, start_response)


def _socket(port: int) -> str:
    return f"inner-{port}"


def _write_ring(path: str, port: int) -> None:
    """One replica on one device: the smallest ring there is."""
    builder = RingBuilder(2, 1, 0)
    here = {"ip": "127.0.0.1", "port": port, "device": "d1", "region": 1, "zone": 1}
    copied = {"replication_ip": "127.0.0.1", "replication_port": port}
    builder.add_dev({"id": 0, "weight": 1.0, "meta": "", **here, **copied})
    builder.rebalance()
    builder.get_ring().save(path)


def _spawn(listener: Any, app: Any) -> Any:
    return eventlet.spawn(
        wsgi.server,
        listener,
        app,
        utils.NullLogger(),
        protocol=SwiftHttpProtocol,
        capitalize_response_headers=False,  # Amazon's clients want ETag, not Etag
        url_length_limit=MAX_REQUEST_LINE,
    )


if __name__ == "__main__":
    serve(Path(sys.argv[1]), json.loads(os.environ[KEYS]), [listen(int(sys.argv[2]))])
