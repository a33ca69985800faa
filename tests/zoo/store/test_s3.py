"""S3 when things go wrong: killed clients, killed servers, broken connections, refusals."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import killed_child
import pytest
from botocore.config import Config
from bundle_maker import BUILD_KEY, make_bundle, publish
from forwarder import Forwarder

from menagerie.format.folder import open_bundle
from zoo.errors import MenagerieError, NotInStore, StoreError, StoreUnreachable
from zoo.store import Store
from zoo.store.coordination import publishing
from zoo.store.inspection import probe
from zoo.store.s3 import S3Objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from swift_server import SwiftServer

MIB = 2**20
PART = 5 * MIB


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A bundle whose weights travel in four parts, the last a short one."""
    return make_bundle(tmp_path / "large", {"weights.safetensors": os.urandom(3 * PART + 1000)})


@pytest.fixture
def fresh(s3: Any) -> Iterator[Callable[..., S3Objects]]:
    """Makes stores whose clients no other test shares, so that their events may be watched."""
    made: list[S3Objects] = []

    def make(
        *, concurrency: int = 4, attempts: int = 3, seconds: float = 60.0, **changes: object
    ) -> S3Objects:
        config = Config(retries={"total_max_attempts": attempts}, read_timeout=seconds)
        objects = S3Objects("zoo", s3.prefix, **{**s3.given, "config": config, **changes})
        objects.part_bytes, objects.concurrency = PART, concurrency
        assert objects._client is not None  # made here, once, and not in each child of a fork
        made.append(objects)
        return objects

    yield make
    for objects in made:
        objects._client.close()


def watch(objects: S3Objects, act: Callable[[str], object]) -> None:
    """Calls `act` with the operation's name before each request is sent."""

    def before_send(event_name: str, **_: object) -> None:
        act(event_name.rpartition(".")[2])

    objects._client.meta.events.register("before-send.s3", before_send)


def killed_at(objects: S3Objects, bundle: Path, operation: str, count: int) -> bool:
    """Publishes in a child that SIGKILLs itself before the `count`-th request of `operation`.

    An empty operation counts all. `objects` is not used in this process, lest two share a socket.
    Returns whether the child was killed; else it published.
    """

    def work(step: Callable[[], None]) -> None:
        watch(objects, lambda name: step() if operation in ("", name) else None)
        publish(Store(objects), bundle)

    return killed_child.killed_at(count, work)


def line(error: MenagerieError) -> str:
    """The message, which must be a single line."""
    assert "\n" not in str(error)
    return str(error)


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.sweep)])
def test_killed_before_every_request_of_publishing(
    fresh: Callable[[], S3Objects], tmp_path: Path, bundle: Path, stride: int
) -> None:
    """Whenever the publisher dies, all that is listed is whole; taken up, it completes."""
    store, victim = Store(fresh()), fresh()
    count = 0
    alive = False
    while not alive:
        count += stride
        build = make_bundle(tmp_path / f"b{count}", {"x": os.urandom(9)}, model=f"m{count}")
        alive = not killed_at(victim, build, "", count)
        listed = store.releases(f"m{count}")
        assert len(listed) <= 1
        for release in listed:
            assert store.find(release.model, "cpu") == release
            store.pull(release, tmp_path / f"out{count}")
        publish(store, build)
        assert store.find(f"m{count}", "cpu").build_key == BUILD_KEY
    assert count > 8  # the requests were seen at all


def test_killed_in_the_middle_of_a_large_file(
    fresh: Callable[..., S3Objects], large: Path, tmp_path: Path
) -> None:
    """Nothing was listed before, the next publication is whole, and a sweep ends what is left."""
    assert killed_at(fresh(concurrency=1), large, "UploadPart", 3)
    objects = fresh()
    store = Store(objects)
    assert store.releases() == []
    assert not store.held([("tiny", "cpu", BUILD_KEY)])
    release = publish(store, large)
    pulled = open_bundle(store.pull(release, tmp_path / "out"))
    assert pulled.document == open_bundle(large).document
    assert objects.abandon_uploads(time.time() + 3600, lambda _: True) == 1


def test_two_publishers_of_the_same_bytes(
    fresh: Callable[..., S3Objects], large: Path, tmp_path: Path
) -> None:
    """One completes the upload that the other is about to complete: both succeed."""
    slow, quick = fresh(), fresh()

    def overtake(operation: str) -> None:
        if operation == "CompleteMultipartUpload":
            publish(Store(quick), large)

    watch(slow, overtake)
    release = publish(Store(slow), large)
    assert Store(quick).releases() == [release]
    Store(quick).pull(release, tmp_path / "out")


@pytest.mark.parametrize("operation", ["UploadPart", "CompleteMultipartUpload"])
def test_an_upload_that_is_ended_meanwhile_begins_anew(
    fresh: Callable[..., S3Objects], large: Path, tmp_path: Path, operation: str
) -> None:
    """A sweep, or a rule of the bucket's, finds it too old while it is going on."""
    sweeper, objects = fresh(), fresh(concurrency=1)
    swept: list[int] = []

    def interfere(name: str) -> None:
        if name == operation and not swept:
            swept.append(sweeper.abandon_uploads(time.time() + 3600, lambda _: True))

    watch(objects, interfere)
    seen: list[int] = []
    files = open_bundle(large).manifest.listed
    with publishing(objects, large, files, lambda done, _: seen.append(done)):
        assert swept == [1]
    release = publish(Store(objects), large)
    assert seen[-1] == max(seen) == release.size
    Store(sweeper).pull(release, tmp_path / "out")
    assert sweeper.abandon_uploads(time.time() + 3600, lambda _: True) == 0


def test_an_upload_of_the_last_moment_is_abandoned(fresh: Callable[..., S3Objects]) -> None:
    """S3 dates uploads in whole seconds: one that began in the second of `before` is as old."""
    objects = fresh()
    client, key = objects._client, f"{objects._prefix}blobs/ab/{uuid.uuid4().hex * 2}"
    upload = client.create_multipart_upload(Bucket="zoo", Key=key)["UploadId"]
    listed = client.list_multipart_uploads(Bucket="zoo", Prefix=key)["Uploads"]
    [began] = [each["Initiated"].timestamp() for each in listed if each["UploadId"] == upload]
    assert objects.abandon_uploads(began - 1, lambda _: True) == 0
    assert objects.abandon_uploads(began, lambda _: True) == 1


def test_a_broken_upload_can_be_begun_again(
    s3: Any, swift: SwiftServer, fresh: Callable[..., S3Objects], large: Path
) -> None:
    """The server is killed in the middle of a body: one line; when it is back, all is sent."""
    with Forwarder(swift.ports["http"]) as forwarder:
        forwarder.cuts["up"] = [(PART + 2 * MIB, swift.kill)]
        broken = fresh(endpoint_url=f"http://127.0.0.1:{forwarder.port}", concurrency=1, attempts=2)
        try:
            with pytest.raises(StoreUnreachable) as caught:
                publish(Store(broken), large)
        finally:
            swift.start()
        assert line(caught.value).startswith(f"{broken.url} at http://127.0.0.1:")
        objects = fresh()
        store = Store(objects)
        assert store.releases() == []
        publish(store, large)
        assert len(store.releases()) == 1


def test_a_killed_server_forgets_nothing(
    swift: SwiftServer, fresh: Callable[..., S3Objects], bundle: Path, tmp_path: Path
) -> None:
    """What was published before a SIGKILL of every server process is there after it."""
    store = Store(fresh())
    release = publish(store, bundle)
    swift.kill()
    swift.start()
    assert store.releases() == [release]
    store.pull(release, tmp_path / "out")


def test_a_broken_download_goes_on_by_itself(
    swift: SwiftServer, fresh: Callable[..., S3Objects], large: Path, tmp_path: Path
) -> None:
    """Cut twice, a download asks for the rest: hardly more bytes flow than there are."""
    release = publish(Store(fresh()), large)
    with Forwarder(swift.ports["http"]) as forwarder:
        forwarder.cuts["down"] = [(4 * MIB, int), (9 * MIB, int)]
        through = fresh(endpoint_url=f"http://127.0.0.1:{forwarder.port}", attempts=4)
        seen: list[int] = []
        Store(through).pull(release, tmp_path / "out", lambda done, _: seen.append(done))
        assert forwarder.cuts["down"] == []
        assert forwarder.sent["down"] < release.size + 2 * MIB
        assert seen[-1] == release.size
    assert open_bundle(tmp_path / "out").document == release.document


def test_a_connection_that_keeps_breaking(
    swift: SwiftServer, fresh: Callable[..., S3Objects], large: Path, tmp_path: Path
) -> None:
    """Retries are bounded, the error is one line, and what came is kept for the next pull."""
    release = publish(Store(fresh()), large)
    with Forwarder(swift.ports["http"]) as forwarder:
        forwarder.cuts["down"] = [(count * MIB, int) for count in range(2, 20, 2)]
        through = fresh(endpoint_url=f"http://127.0.0.1:{forwarder.port}", attempts=2)
        with pytest.raises(StoreUnreachable, match="the connection broke") as caught:
            Store(through).pull(release, tmp_path / "out")
        line(caught.value)
    assert not (tmp_path / "out").exists()
    (partial,) = tmp_path.glob(".out.*.partial")
    assert (partial / "weights.safetensors").stat().st_size > MIB
    Store(fresh()).pull(release, tmp_path / "out")
    assert not partial.exists()


def test_a_closed_endpoint(fresh: Callable[..., S3Objects], bundle: Path) -> None:
    """A refused connection is reported at once, with what to do."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
        store = Store(fresh(endpoint_url=endpoint))
        start = time.monotonic()
        for work in (store.releases, lambda: publish(store, bundle)):
            with pytest.raises(StoreUnreachable) as caught:
                work()
            assert line(caught.value) == (
                f"{store.url} at {endpoint}: no answer (connection refused). "
                "Check the endpoint and the network, or run `zoo doctor`"
            )
        assert time.monotonic() - start < 20
        check = probe(store.objects)
    assert [each.detail == "" for each in check] == [False]


def test_an_unknown_host(fresh: Callable[..., S3Objects]) -> None:
    """A name that does not resolve is reported as such."""
    store = Store(fresh(endpoint_url="http://no-such-host.invalid", attempts=1))
    with pytest.raises(StoreUnreachable, match=r"no answer \(.*name") as caught:
        store.releases()
    line(caught.value)


def test_a_silent_server(fresh: Callable[..., S3Objects]) -> None:
    """A server that accepts and says nothing is given up after the read timeout."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        store = Store(fresh(endpoint_url=endpoint, seconds=0.2, attempts=1))
        with pytest.raises(StoreUnreachable, match=r"no answer \(timed out\)"):
            store.releases()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"aws_secret_access_key": "wrong"}, "SignatureDoesNotMatch"),
        (
            {"aws_access_key_id": "test:unknown"},
            "InvalidAccessKeyId|SignatureDoesNotMatch|AccessDenied",
        ),
    ],
)
def test_wrong_credentials(
    fresh: Callable[..., S3Objects], bundle: Path, changes: dict[str, str], code: str
) -> None:
    """Refused, in one line that names the variables; the secret is not in it."""
    store = Store(fresh(**changes))
    with pytest.raises(
        StoreError, match=rf"refused \(({code})\)\. Check AWS_ACCESS_KEY_ID"
    ) as caught:
        store.releases()
    assert "wrong" not in line(caught.value)
    with pytest.raises(StoreError, match=r"refused \((403|" + code + r")\)"):
        publish(store, bundle)


def test_no_credentials(
    s3: Any, fresh: Callable[..., S3Objects], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where boto3 finds none either, the variables to set are named."""
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    store = Store(fresh(aws_access_key_id=None, aws_secret_access_key=None))
    with pytest.raises(StoreError, match=r"no credentials\. Set AWS_ACCESS_KEY_ID and"):
        store.releases()


def test_no_bucket(s3: Any, bundle: Path) -> None:
    """A bucket that does not exist is named, for reading and for publishing."""
    objects = S3Objects("missing", "prefix", **s3.given)
    store = Store(objects)
    for work in (store.releases, lambda: publish(store, bundle)):
        with pytest.raises(StoreError, match=r"there is no bucket 'missing'\. Create it"):
            work()
    objects._client.close()


def test_a_certificate_of_no_trusted_authority(
    swift: SwiftServer, fresh: Callable[..., S3Objects]
) -> None:
    """Without the authority's file TLS refuses, and the variable to set is named."""
    store = Store(fresh(endpoint_url=swift.tls, attempts=1))
    with pytest.raises(StoreUnreachable, match="Set AWS_CA_BUNDLE") as caught:
        store.releases()
    assert "its certificate is not trusted" in line(caught.value)


@pytest.mark.parametrize("endpoint", ["http", "tls"])
def test_with_checksums(
    swift: SwiftServer,
    fresh: Callable[..., S3Objects],
    large: Path,
    tmp_path: Path,
    endpoint: str,
) -> None:
    """Servers that take checksums are sent them where the settings say so, large files included."""
    objects = fresh(
        endpoint_url=getattr(swift, endpoint),
        verify=str(swift.ca_bundle),
        config=Config(request_checksum_calculation="when_supported"),
    )
    store = Store(objects)
    store.pull(publish(store, large), tmp_path / "out")


class _WithoutChecksums(BaseHTTPRequestHandler):
    """Passes requests on to a real server, but for those with a checksum, as R2 answers them."""

    behind = ""
    protocol_version = "HTTP/1.1"  # so that it answers `Expect: 100-continue` at once

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        names = {name.lower() for name in self.headers} - {"x-amz-checksum-mode"}
        if any("checksum" in name or name == "x-amz-trailer" for name in names):
            code = b"<Error><Code>NotImplemented</Code><Message>a header is not</Message></Error>"
            self._answer(501, [("Content-Type", "application/xml")], code)
            return
        server = HTTPConnection(self.behind, timeout=30)
        server.request(self.command, self.path, body, dict(self.headers.items()))
        answer = server.getresponse()
        content = answer.read()
        kept = [each for each in answer.getheaders() if each[0].lower() not in _OF_A_CONNECTION]
        if self.command == "HEAD":
            kept.append(("Content-Length", answer.headers["Content-Length"] or "0"))
        self._answer(answer.status, kept, content)
        server.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815 - http.server's names

    def log_message(self, *_: object) -> None:
        """Nothing."""


_OF_A_CONNECTION = {"connection", "transfer-encoding", "content-length", "date", "server"}


def test_a_server_that_refuses_checksums_is_sent_none(
    swift: SwiftServer, fresh: Callable[..., S3Objects], large: Path, tmp_path: Path
) -> None:
    """All is published, parts too, and the doctor's probe passes."""
    handler = type("Handler", (_WithoutChecksums,), {"behind": swift.http.removeprefix("http://")})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        objects = fresh(endpoint_url=f"http://127.0.0.1:{server.server_port}")
        Store(objects).pull(publish(Store(objects), large), tmp_path / "out")
        checked = probe(Store(objects).objects)
        server.shutdown()
    assert {each.detail for each in checked} == {""}


def test_many_keys_are_all_listed(fresh: Callable[..., S3Objects]) -> None:
    """A listing that comes in pages is read to its end."""
    objects = fresh()
    real = objects._client.get_paginator

    def small_pages(name: str) -> Any:
        pages = real(name)
        paginate = pages.paginate
        pages.paginate = lambda **k: paginate(**k, PaginationConfig={"PageSize": 2})
        return pages

    objects._client.get_paginator = small_pages
    for number in range(5):
        objects.put_small(f"notes/{number}", b"")
    assert objects.list_keys("notes/") == [f"notes/{number}" for number in range(5)]
    with pytest.raises(NotInStore):
        objects.read_small("notes/5", 10)


def test_a_page_is_kept_as_a_page(fresh: Callable[..., S3Objects]) -> None:
    """So that a browser that opens the catalogue in a bucket shows it, and saves other files."""
    objects = fresh()
    for key, kind in (
        ("catalogue/index.html", "text/html; charset=utf-8"),
        ("catalogue/models.json", "application/octet-stream"),
    ):
        objects.put_small(key, b"<p>")
        head = objects._client.head_object(Bucket="zoo", Key=objects._prefix + key)
        assert head["ContentType"] == kind
