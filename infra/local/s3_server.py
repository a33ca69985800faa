"""A real S3 server without root, in one process: OpenStack Swift with its s3api, on loopback.

`python -m infra.local.s3_server FOLDER NAME=[ADDRESS:]PORT[,CHAIN,KEY]...` serves an account, a
container and an object server over one folder, on ports of their own choice, and for each NAME a
proxy that speaks S3 and alone may ask the other three; with the PEM files of a certificate chain
and its key over TLS. Who may do what it reads from the environment (`infra.local.s3_rights`). The
folder needs a file system with extended attributes; ext4, xfs, btrfs and Linux's tmpfs have them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.local.inner_token import InnerToken
from infra.local.ports import free_ports
from infra.local.s3_rights import Rights, guarded
from menagerie import process

if TYPE_CHECKING:
    from collections.abc import Mapping

# Set by tests: Linux ends the process when its parent dies, however that dies.
WITH_PARENT = "MENAGERIE_WITH_PARENT"

_RIGHTS = "MENAGERIE_SWIFT_RIGHTS"
_STORAGE = ("account", "container", "object")
_CONF = Path(__file__).with_name("swift_conf")


def command(folder: Path, proxies: Mapping[str, str]) -> list[str]:
    """How to start the server.

    Args:
        folder: its configuration and its data.
        proxies: what each listens on, by name: PORT of 127.0.0.1 or ADDRESS:PORT, and for TLS
            ",CHAIN,KEY" behind it.
    """
    program = [sys.executable, "-W", "ignore", "-m", "infra.local.s3_server"]
    return [*program, str(folder), *(f"{name}={place}" for name, place in proxies.items())]


def environment(rights: Rights) -> dict[str, str]:
    """What the process needs: its keys' secrets, which stand in no file and no argument."""
    return {"EVENTLET_NO_GREENDNS": "yes", "TZ": "UTC", _RIGHTS: rights.to_json()}


def s3api(global_conf: dict[str, str], **local: str) -> Any:
    """Swift's s3api that knows the rights of keys; a filter as paste.deploy wants it."""
    from swift.common.middleware.s3api import s3api as theirs  # type: ignore[import-untyped]

    theirs.S3ApiMiddleware = guarded(_rights())
    return theirs.filter_factory(global_conf, **local)


def tempauth(global_conf: dict[str, str], **local: str) -> Any:
    """Swift's tempauth with users from the environment instead of a file, for S3 alone.

    Swift's own API knows nothing of our policies: nobody gets a token for it.
    """
    from swift.common.middleware import tempauth as theirs  # type: ignore[import-untyped]
    from swift.common.swob import Request  # type: ignore[import-untyped]

    class ForS3(theirs.TempAuth):  # type: ignore[misc]
        def handle(self, env: dict[str, Any], start_response: Any) -> Any:
            return self.denied_response(Request(env))(env, start_response)

    users = {f"user_{key.name.replace(':', '_')}": f"{key.secret} .admin" for key in _rights().keys}
    return lambda app: ForS3(app, {**global_conf, **local, **users})


def _rights() -> Rights:
    return Rights.from_json(os.environ[_RIGHTS])


def main(place: str, *proxies: str) -> None:
    """Serve until a signal ends it."""
    if os.environ.get(WITH_PARENT):
        process.end_with(os.getppid())
    from eventlet import spawn, wsgi  # type: ignore[import-untyped]
    from eventlet.hubs import use_hub  # type: ignore[import-untyped]
    from swift.common.constraints import MAX_REQUEST_LINE  # type: ignore[import-untyped]
    from swift.common.utils import NullLogger  # type: ignore[import-untyped]
    from swift.common.wsgi import (  # type: ignore[import-untyped]
        SwiftHttpProtocol,
        check_config,
        loadapp,
    )

    use_hub("poll")  # as Swift does

    folder = Path(place)
    for name in ("devices/d1", "cache"):
        (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "swift.conf").write_text((_CONF / "swift.conf").read_text())
    common = (_CONF / "common.conf").read_text()

    token = InnerToken()
    token.send()

    def serve(name: str, app: str, text: str, **values: object) -> Any:
        conf_file = folder / f"{name}.conf"
        values["ip"] = values.get("ip") or "127.0.0.1"
        conf_file.write_text((common + text).format(folder=folder, **values))
        # Without workers the strategy listens itself.
        listener = check_config(str(conf_file), app)[3].no_fork_sock()
        loaded = loadapp(str(conf_file), global_conf={"log_name": name})
        return spawn(
            wsgi.server,
            listener,
            token.guard(loaded) if name in _STORAGE else loaded,
            NullLogger(),
            protocol=SwiftHttpProtocol,
            capitalize_response_headers=False,  # Amazon's clients want ETag, not Etag
            url_length_limit=MAX_REQUEST_LINE,
        )

    servers = []
    text = (_CONF / "storage.conf").read_text()
    for kind, port in zip(_STORAGE, free_ports(len(_STORAGE)), strict=True):
        _write_ring(folder / f"{kind}.ring.gz", port)
        servers.append(serve(kind, f"{kind}-server", text, kind=kind, port=port, tls=""))
    text = (_CONF / "proxy.conf").read_text()
    for proxy in proxies:
        name, listens = proxy.split("=")
        place, *files = listens.split(",")
        address, _, number = place.rpartition(":")
        tls = "cert_file = {}\nkey_file = {}".format(*files) if files else ""
        servers.append(serve(name, "proxy-server", text, ip=address, port=number, tls=tls))
    for server in servers:
        server.wait()


def _write_ring(path: Path, port: int) -> None:
    """One replica on one device: the smallest ring there is."""
    from swift.common.ring import RingBuilder  # type: ignore[import-untyped]

    builder = RingBuilder(2, 1, 0)
    here = {"ip": "127.0.0.1", "port": port, "device": "d1", "region": 1, "zone": 1}
    copied = {"replication_ip": "127.0.0.1", "replication_port": port}
    builder.add_dev({"id": 0, "weight": 1.0, "meta": "", **here, **copied})
    builder.rebalance()
    builder.get_ring().save(str(path))


if __name__ == "__main__":
    main(*sys.argv[1:])
