"""Another user of the machine, who reaches every port of loopback and has no secret."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import psutil
import pytest
import swift_server

from infra.local.inner_token import InnerToken
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

RELEASE = "releases/tiny/cpu/secret.json"
REFUSED = {400, 401, 403}  # Swift takes what bears no key for a malformed request
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


def inner_ports(server: swift_server.SwiftServer) -> set[int]:
    """Where the server listens besides its proxies."""
    assert server.process is not None
    listening = psutil.Process(server.process.pid).net_connections("tcp")
    ports = {each.laddr.port for each in listening if each.status == psutil.CONN_LISTEN}
    return ports - set(server.ports.values())


def test_the_inner_servers_answer_nobody_else(
    server: swift_server.SwiftServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listing, reading, replacing and deleting, as the review did it; the proxy goes on working."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.http)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", swift_server.ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", swift_server.SECRET_KEY)
    objects = open_store("s3://models/zoo").objects
    objects.ensure_bucket()  # type: ignore[attr-defined]
    objects.put_small(RELEASE, b"released")
    ports = inner_ports(server)
    assert len(ports) == INNER_SERVERS
    for port in ports:
        for partition in range(4):
            for path in ("AUTH_test", "AUTH_test/models", f"AUTH_test/models/zoo/{RELEASE}"):
                address = f"http://127.0.0.1:{port}/d1/{partition}/{path}"
                for method in ("GET", "PUT", "DELETE"):
                    assert status(address, method, **{"X-Timestamp": "9999999999.0"}) == 403
        assert status(f"http://127.0.0.1:{port}/recon/version") == 403
        guess = {"X-Menagerie-Inner-Token": "0" * 64}
        assert status(f"http://127.0.0.1:{port}/d1/0/AUTH_test", **guess) == 403
    assert objects.read_small(RELEASE, 100) == b"released"


def test_the_proxy_wants_a_key(server: swift_server.SwiftServer) -> None:
    """By S3's way and by Swift's own; a token that a client brings itself opens nothing."""
    for path in ("/models/zoo", f"/models/zoo/{RELEASE}", f"/v1/AUTH_test/models/zoo/{RELEASE}"):
        for headers in ({}, {"X-Menagerie-Inner-Token": "0" * 64}):
            assert status(f"{server.http}{path}", **headers) in REFUSED
    assert status(f"{server.http}/auth/v1.0", **{"X-Auth-User": swift_server.ACCESS_KEY}) == 401


def test_the_guarded_application_never_sees_the_token() -> None:
    """It cannot log it or send it on."""
    token, seen = InnerToken(), []
    guarded = token.guard(lambda environ, _: seen.append(dict(environ)) or [])
    given = {"HTTP_X_MENAGERIE_INNER_TOKEN": token._token, "PATH_INFO": "/"}
    guarded(given, lambda *_: None)
    assert seen == [{"PATH_INFO": "/"}]
