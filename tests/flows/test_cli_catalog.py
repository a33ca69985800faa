"""The catalogue as a site: every link of every page is followed from outside."""

from __future__ import annotations

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urldefrag, urljoin
from urllib.request import urlopen

import pytest
from bundle_maker import make_bundle

from flows.cli import invoke
from menagerie.format.archive import pack
from zoo.signing.keyring import Keyring
from zoo.signing.promotion import Promoter
from zoo.store import open_store

sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))

import swift_server
from web_server import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from zoo.store import Release, Store

    Catalog = Callable[..., str]

WHEEL = "menagerie-1.0.0-py3-none-manylinux_2_28_x86_64.whl"


class Page(HTMLParser):
    """A page's links, and the lines with which it begins."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.first_lines = ""
        self._within = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keeps links."""
        found = dict(attrs)
        self._within = found.get("id") == "first-lines" or (self._within and tag == "code")
        if tag == "a":
            self.links.append(found.get("href") or "")

    def handle_endtag(self, tag: str) -> None:
        """The lines end."""
        self._within = self._within and tag != "pre"

    def handle_data(self, data: str) -> None:
        """Keeps the lines."""
        self.first_lines += data if self._within else ""


def follow(index: str) -> tuple[dict[str, Page], set[bytes]]:
    """All pages that one leads to, by address without a signature, and the bytes of other files."""
    pages: dict[str, Page] = {}
    files: dict[str, bytes] = {}
    waiting = [index]
    while waiting:
        address = urldefrag(waiting.pop())[0]
        if address in pages or address in files:
            continue
        with urlopen(address, timeout=30) as answer:  # noqa: S310 - of our own servers; an error raises
            content, kind = answer.read(), answer.headers["content-type"] or ""
        if "catalogue/" in address and address.partition("?")[0].endswith(".html"):
            assert "?" not in address or kind.startswith("text/html")  # a browser shows it
            pages[address] = Page(content.decode())
            waiting += [urljoin(address, link) for link in pages[address].links]
        else:
            files[address] = content
    return {address.partition("?")[0]: page for address, page in pages.items()}, set(files.values())


@pytest.fixture
def catalog(capfd: pytest.CaptureFixture[str]) -> Catalog:
    """Runs `zoo catalog` and gives the address that it names."""

    def run(*arguments: object) -> str:
        capfd.readouterr()
        assert invoke(["catalog", *map(str, arguments), "--json"]) == 0
        return str(json.loads(capfd.readouterr().out)["index"])

    return run


def released(store: Store, keys: Path, tmp_path: Path) -> list[Release]:
    """Two models, one of them in two precisions, so that pages link one another."""
    keyring = Keyring(keys) if keys.exists() else Keyring.create(keys)
    made = []
    for digits, model in (("ab", "net"), ("cd", "net_float16"), ("ef", "other")):
        files = {"programs/main/model.so": digits.encode(), "report.html": b"<p>proven"}
        bundle = make_bundle(tmp_path / digits, files, build_key=digits * 32, model=model)
        made.append(Promoter(store, keyring).promote(store.propose(bundle)))
    return made


@pytest.fixture(scope="module")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[swift_server.SwiftServer]:
    """A real S3 server that shows nothing without a key."""
    yield from swift_server.running(tmp_path_factory.mktemp("swift"))


@pytest.fixture
def bucket(
    swift: swift_server.SwiftServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Store:
    """An empty store of the test's own in a bucket, which this process has the key to."""
    monkeypatch.setenv("MENAGERIE_KEYS", str(tmp_path / "keys"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", swift.http)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", swift_server.ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", swift_server.SECRET_KEY)
    store = open_store(f"s3://models/{tmp_path.name}")
    store.objects.ensure_bucket()  # type: ignore[attr-defined]
    return store


def check(index: str, releases: list[Release]) -> dict[str, Page]:
    """The site is whole: a page for each model, and every file of every release."""
    pages, files = follow(index)
    assert len(pages) == 1 + len(releases)
    for release in releases:
        assert release.document in files
        assert release.build_key[:2].encode() in files  # its library
    for page in pages.values():
        assert page.first_lines.splitlines()[-1].startswith(("menagerie pull", "curl"))
    return pages


def test_a_folder_behind_a_web_server(
    signed_store: Store, tmp_path: Path, catalog: Catalog
) -> None:
    """The owner is shown the file; a reader finds the same pages at the server's address."""
    releases = released(signed_store, tmp_path / "keys", tmp_path)
    index = catalog("--store", signed_store.url)
    assert Path(index).is_file()
    with serving(tmp_path / "store") as server:
        check(f"{server.address}/catalogue/index.html", releases)


@pytest.mark.sweep
def test_a_private_bucket_has_one_address_for_all(
    bucket: Store, tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs no key, nor do its commands; without its signature it shows nothing."""
    releases = released(bucket, tmp_path / "keys", tmp_path)
    archive = pack(tmp_path / "ab", tmp_path / "archive.zip")
    bucket.put_archive(releases[0], archive)
    index = catalog("--store", bucket.url)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    pages = check(index, releases)
    [page] = [page for place, page in pages.items() if place.endswith("/net.html")]
    command = page.first_lines.splitlines()[-1]
    subprocess.run(["/bin/sh", "-ec", command], cwd=tmp_path, check=True)
    assert (tmp_path / "net" / "manifest.json").read_bytes() == releases[0].document
    with pytest.raises(OSError, match=r"HTTP Error 40[013]"):
        urlopen(index.partition("?")[0], timeout=30)  # noqa: S310


def test_a_bucket_behind_a_web_server(bucket: Store, tmp_path: Path, catalog: Catalog) -> None:
    """With the address that its owner gave once, commands and the printed address name it."""
    shown = tmp_path / "shown"
    (tmp_path / WHEEL).write_bytes(b"PK")
    released(bucket, tmp_path / "keys", tmp_path)
    with serving(shown) as server:
        said = ("--address", f"{server.address}/", "--wheel", tmp_path / WHEEL)
        index = catalog("--store", bucket.url, *said)
        assert index == catalog("--store", bucket.url) == f"{server.address}/catalogue/index.html"
        releases = released(bucket, tmp_path / "keys", tmp_path)  # a promotion keeps what was said
        for file in bucket.objects.list_files(""):  # what a web server before the bucket does
            path = shown / file.key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bucket.objects.read_small(file.key, file.bytes))
        pages = check(index, releases)
    page = pages[f"{server.address}/catalogue/models/net.html"]
    assert page.first_lines.splitlines() == [
        f"pip install {server.address}/catalogue/wheels/{WHEEL}",
        f"menagerie trust {server.address}/catalogue/root.json",
        f"menagerie pull net --target cpu --store {server.address} -o net",
    ]


def test_an_address_that_no_browser_finds_is_refused(signed_store: Store) -> None:
    """Before anything is kept or drawn."""
    signed_store.objects.put_small("notes", b"")
    for address in ("models.example/zoo", "ftp://a/b", "https://a/b?c=d", "https://me:you@a/b"):
        assert invoke(["catalog", "--store", signed_store.url, "--address", address]) == 2
    assert signed_store.objects.list_keys("catalogue/") == []
