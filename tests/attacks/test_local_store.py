"""Another user of the machine, who reaches every port of loopback and has no secret."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
import swift_server

import infra
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

RELEASE = "releases/tiny/cpu/secret.json"
REFUSED = {400, 401, 403}  # Swift takes a request without a key for a malformed one
INNER_SERVERS = 3  # account, container and object


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[swift_server.SwiftServer]:
    """A running server."""
    yield from swift_server.running(tmp_path_factory.mktemp("swift"))


def status(address: str, method: str = "GET", **headers: str) -> int:
    """The answer's code."""
    request = urllib.request.Request(  # noqa: S310 - loopback
        address, method=method, headers=headers, data=b"planted" if method == "PUT" else None
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_inner_servers_are_reached_by_no_port(
    server: swift_server.SwiftServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They need no key: besides the proxies only Unix sockets listen, for their owner alone."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.http)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", swift_server.ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", swift_server.SECRET_KEY)
    objects = open_store("s3://models/zoo").objects
    objects.ensure_bucket()  # type: ignore[attr-defined]
    objects.put_small(RELEASE, b"released")
    assert server.process is not None
    process = psutil.Process(server.process.pid)
    listening = [c for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN]
    assert {each.laddr.port for each in listening} == set(server.ports.values())
    sockets = [path for path in server.folder.iterdir() if path.is_socket()]
    assert len(sockets) == INNER_SERVERS
    for path in (server.folder, *sockets):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    names = {each.laddr for each in process.net_connections("unix") if each.laddr}
    assert not [name for name in names if name.startswith(("@", "\0"))]  # open to every user
    assert objects.read_small(RELEASE, 100) == b"released"


def test_the_proxy_wants_a_key(server: swift_server.SwiftServer) -> None:
    """By S3's way and by Swift's own."""
    for path in ("/models/zoo", f"/models/zoo/{RELEASE}", f"/v1/AUTH_test/models/zoo/{RELEASE}"):
        assert status(f"{server.http}{path}") in REFUSED
    asked = {"X-Auth-User": swift_server.ACCESS_KEY, "X-Auth-Key": "guess"}
    assert status(f"{server.http}/auth/v1.0", **asked) == 401
    asked["X-Auth-Key"] = swift_server.SECRET_KEY  # even so Swift's own API gives no token
    assert status(f"{server.http}/auth/v1.0", **asked) == 503


def test_code_and_secrets_may_have_any_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path is not read as an address, nor a secret as a template."""
    code, secret = tmp_path / "a#b%2fc", "100%(x)s%%"
    shutil.copytree(Path(infra.__file__).parent, code / "infra")
    monkeypatch.chdir(code)
    server = swift_server.SwiftServer(tmp_path / "data")
    command = [sys.executable, "-m", "infra.local.s3_server", str(server.folder)]
    keys = {"MENAGERIE_SWIFT_KEYS": json.dumps({swift_server.ACCESS_KEY: secret})}
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.http)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", swift_server.ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    with subprocess.Popen([*command, str(server.ports["http"])], env=os.environ | keys) as process:
        try:
            while not swift_server.answers(server.http):
                assert process.poll() is None
            objects = open_store("s3://models/zoo").objects
            objects.ensure_bucket()  # type: ignore[attr-defined]
            objects.put_small(RELEASE, b"released")
            assert objects.read_small(RELEASE, 100) == b"released"
        finally:
            process.kill()
