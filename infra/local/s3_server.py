"""A real S3 server without root, in one process: OpenStack Swift with its s3api.

`python -m infra.local.s3_server FOLDER PORT` serves on loopback; `MENAGERIE_SWIFT_KEYS` has secrets
by name, as JSON, and `swift.conf` everything else. Swift's account, container and object servers
require no authentication, so they listen on sockets in FOLDER that other users cannot open.
"""

from __future__ import annotations

import json
import os
import sys
import time
from array import array
from pathlib import Path
from typing import Any

import eventlet
from eventlet import wsgi
from eventlet.green import socket
from eventlet.hubs import use_hub
from swift.common import bufferedhttp, utils
from swift.common.constraints import MAX_REQUEST_LINE
from swift.common.ring import RingData
from swift.common.wsgi import ConfigString, SwiftHttpProtocol, loadapp, loadcontext, loadwsgi


def listen(port: int, address: str = "127.0.0.1") -> Any:
    """Return a listener for `serve`."""
    return eventlet.listen((address, port), backlog=4096, reuse_port=False)


def serve(folder: Path, keys: dict[str, str], listeners: list[Any]) -> None:
    """Serve S3 until a signal ends the process, on listeners of `listen` or their TLS wrappers.

    The file system of `folder` must have extended attributes, like ext4, xfs, btrfs and tmpfs.
    `keys` are secrets by name, account:user: these users may do everything, others nothing.
    """
    os.umask(0o077)
    (folder / "devices" / "d1").mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    os.chdir(folder)  # socket paths must be short
    use_hub("poll")  # like Swift
    utils.monkey_patch()
    conf, servers = Path(__file__).with_name("swift.conf"), []
    utils.set_swift_dir(str(conf.parent))
    bufferedhttp.BufferedHTTPConnection = _InnerConnection
    places = {"swift_dir": folder, "devices": folder / "devices", "recon_cache_path": folder}
    settings = {name: str(path) for name, path in places.items()}
    text = conf.read_text()  # a path may contain characters that Paste's addresses may not
    for kind in ("account", "container", "object"):
        _write_ring(kind)
        Path(f"{kind}.sock").unlink(missing_ok=True)  # of the previous run
        listener = eventlet.listen(f"{kind}.sock", family=socket.AF_UNIX, backlog=4096)
        inner = loadcontext(loadwsgi.APP, ConfigString(text), kind, global_conf=settings)
        servers.append(_spawn(listener, inner.create()))
    users = {f"user_{name.replace(':', '_')}": f"{secret} .admin" for name, secret in keys.items()}
    proxy = loadapp(ConfigString(text), settings | users, allow_modify_pipeline=False)
    servers += [_spawn(listener, proxy) for listener in listeners]
    for server in servers:
        server.wait()


class _InnerConnection(bufferedhttp.BufferedHTTPConnection):  # type: ignore[misc]
    def connect(self) -> None:
        self._connected_time = time.time()
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self.host)


def _write_ring(kind: str) -> None:
    """Put all four partitions on one device, addressed by its server's socket."""
    place = {"region": 1, "zone": 1, "ip": f"{kind}.sock", "port": 1}
    device = {"id": 0, "device": "d1", "weight": 1.0, **place}
    RingData([array("H", [0] * 4)], [device], part_shift=30).save(f"{kind}.ring.gz")


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
    secrets = json.loads(os.environ["MENAGERIE_SWIFT_KEYS"])
    serve(Path(sys.argv[1]).absolute(), secrets, [listen(int(sys.argv[2]))])
