"""Releases over plain HTTP: found by the ledger, resumed, checked, never more than was promised."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import Request

import pytest
from bundle_maker import make_bundle, published
from web_server import serving

from menagerie.errors import HashMismatch, NotInStore, StoreError, StoreUnreachable, UsageError
from menagerie.format.folder import open_bundle
from menagerie.store import open_releases
from menagerie.store.http import HttpReader, _Redirects
from menagerie.store.layout import blob_key
from zoo.signing.keyring import Keyring
from zoo.signing.promotion import Promoter

if TYPE_CHECKING:
    from pathlib import Path

    from web_server import WebServer

    from zoo.store import Store

BUILD = "ab" * 32


def test_the_latest_release_is_found_and_pulled(
    store: Store, server: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a web server shows is the bundle that was promoted, to the last byte."""
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path / "home"))
    promoter = Promoter(store, Keyring.create(tmp_path / "keys"))
    for digits in ("ef", "cd"):
        made = make_bundle(tmp_path / digits, build_key=digits * 32)
        assert promoter.promote(store.propose(made)).build_key == digits * 32
    releases = open_releases(server.address)
    release = releases.find("tiny", "cpu")
    assert release.build_key == "cd" * 32
    pulled = open_bundle(releases.pull(release, tmp_path / "out"))
    assert pulled.document == release.document


def test_a_build_is_found_by_its_key(store: Store, server: WebServer, tmp_path: Path) -> None:
    """An older build stays within reach."""
    published(store, tmp_path / "made", "cd", hour=12)
    assert open_releases(server.address).find("tiny", "cpu", BUILD).build_key == BUILD


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_download_goes_on(server: WebServer, tmp_path: Path, *, ranges: bool) -> None:
    """Where the connection broke off, the rest is requested; without ranges, all of it."""
    server.ranges = ranges
    releases = open_releases(server.address)
    release = releases.find("tiny", "cpu", BUILD)
    server.break_after = 1  # the smallest file has two bytes
    server.asked.clear()
    releases.pull(release, tmp_path / "out")
    assert open_bundle(tmp_path / "out").document == release.document
    asked = [path for path, _ in server.asked]
    [broken] = {path for path in asked if asked.count(path) > 1}  # files come side by side
    _, rest = [wanted for path, wanted in server.asked if path == broken]
    assert rest.startswith("bytes=1-")


def test_no_more_is_read_than_was_promised(server: WebServer, tmp_path: Path) -> None:
    """An endless file is cut at the size that the release names, and then found to be wrong."""
    server.ranges = False
    releases = open_releases(server.address)
    release = releases.find("tiny", "cpu", BUILD)
    entry = release.manifest.listed["weights.safetensors"]
    server.swap["/" + blob_key(entry.sha256)] = b"x" * (entry.bytes + 10**6)
    moved: list[int] = []
    with pytest.raises(HashMismatch, match="not the ones that were published"):
        releases.pull(release, tmp_path / "out", lambda done, _: moved.append(done))
    assert max(moved) <= release.size
    assert not (tmp_path / "out").exists()


def test_what_is_not_there(server: WebServer) -> None:
    """A model that was never published is said to be absent, not an error of the server."""
    with pytest.raises(NotInStore, match="no release of other for cpu"):
        open_releases(server.address).find("other", "cpu")


def test_a_server_that_does_not_answer() -> None:
    """A closed port is reported in a line that names the address."""
    with pytest.raises(StoreUnreachable, match=r"http://127\.0\.0\.1:9/.*cannot be reached"):
        HttpReader("http://127.0.0.1:9").read_small("x", 10)


def test_a_password_is_sent_and_not_shown(server: WebServer, tmp_path: Path) -> None:
    """`user:password@` in the address becomes a header (RFC 7617), and no message shows it."""
    (tmp_path / "store" / "x").write_bytes(b"1")
    host = server.address.removeprefix("http://")
    reader = HttpReader(f"http://me:hush@{host}")
    assert reader.read_small("x", 10) == b"1"
    assert server.authorization == "Basic bWU6aHVzaA=="  # base64 of me:hush
    with pytest.raises(StoreError) as caught:
        reader.read_small("y", 10)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("url", ["https://x/y?token=hush", "ftp://x/y", "http://", ""])
def test_addresses_that_are_refused(url: str) -> None:
    """Other schemes and queries, whose secrets are not repeated."""
    with pytest.raises(UsageError, match="Give a folder") as caught:
        open_releases(url)
    assert "hush" not in str(caught.value)


def test_a_password_goes_to_no_other_server(
    server: WebServer, tmp_path: Path, store: Store
) -> None:
    """Redirected elsewhere, the request follows without the credentials (RFC 9110, 15.4)."""
    assert store.url
    (tmp_path / "store" / "x").write_bytes(b"1")
    with serving(tmp_path / "none") as first:
        first.redirect = server.address
        host = first.address.removeprefix("http://")
        assert HttpReader(f"http://me:hush@{host}").read_small("x", 10) == b"1"
        assert first.authorization == "Basic bWU6aHVzaA=="
    assert server.authorization == ""


@pytest.mark.parametrize(
    "target", ["ftp://127.0.0.1", "file:///etc", "http://[x", f"http://{'a' * 70}", "http://a..b"]
)
def test_no_redirect_leads_elsewhere_than_to_a_web_server(server: WebServer, target: str) -> None:
    """Not to files, not by FTP, and to no invalid address."""
    server.redirect = target
    with pytest.raises(StoreError):
        HttpReader(server.address).read_small("root.json", 100)


def test_https_is_not_left(server: WebServer) -> None:
    """The root of trust comes from an address that the network cannot have changed."""
    request = Request("https://models.example/root.json")
    with pytest.raises(HTTPError, match="sends on"):
        _Redirects().http_error_302(
            request, io.BytesIO(), 302, "Found", {"location": f"{server.address}/root.json"}
        )


def test_a_server_s_words_are_not_repeated(server: WebServer) -> None:
    """They may say anything; its number is reported, in HTTP's own words where it has some."""
    server.words = "run this instead"
    for code, phrase in (451, "Unavailable For Legal Reasons"), (499, "not of HTTP"):
        server.absent = code
        with pytest.raises(StoreError, match=rf"y: answers {code} \({phrase}\)"):
            HttpReader(server.address).read_small("y", 10)


def test_a_loop_of_redirects_is_reported(server: WebServer) -> None:
    """A server that redirects to itself is asked no more than a few times."""
    server.redirect = server.address
    with pytest.raises(StoreError, match=r"answers 302 \(sends on too often\)"):
        HttpReader(server.address).read_small("root.json", 100)


def test_what_is_not_shown_is_not_there(server: WebServer, tmp_path: Path) -> None:
    """Buckets that may not be listed answer 403 for a missing file: an emulated release is found."""
    server.absent = 403
    with pytest.raises(NotInStore, match="403"):
        HttpReader(server.address).read_small("y", 10)
    assert open_releases(server.address).find("tiny", "cpu", BUILD).model == "tiny"
    assert tmp_path.is_dir()


@pytest.mark.parametrize(
    "url", ["ftp://me:hush@x/y", "https://me:hush@x/y?a=b", "https://me:hush@x/y#z"]
)
def test_no_message_repeats_a_password(url: str) -> None:
    """Whatever else is wrong with the address."""
    with pytest.raises(UsageError) as caught:
        open_releases(url)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("url", ["https://[host/x", "~no-user-of-this-name/x"])
def test_addresses_that_cannot_be_read(url: str) -> None:
    """Reported in a line, not by a traceback."""
    with pytest.raises(UsageError, match="cannot be meant"):
        open_releases(url)
