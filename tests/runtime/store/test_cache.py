"""What was downloaded is not downloaded again: by content, whatever release or target asks."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "servers"))
sys.path.insert(0, str(Path(__file__).parents[1] / "format"))

from bundle_maker import make_bundle
from web_server import serving

from menagerie.errors import StoreError
from menagerie.format.bundle_manifest import FileEntry
from menagerie.format.folder import open_bundle
from menagerie.store import open_releases
from menagerie.store.layout import blob_key
from menagerie.store.pull import CACHE_GB, BlobCache
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from web_server import WebServer

    from zoo.store import Release, Store

WEIGHTS = b"w" * 300_000
LIBRARY = "programs/main/model.so"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store of this test's."""
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def server(store: Store, tmp_path: Path) -> Iterator[WebServer]:
    """Shows it over HTTP."""
    (tmp_path / "store").mkdir(exist_ok=True)
    with serving(tmp_path / "store") as running:
        yield running


@pytest.fixture
def cache(tmp_path: Path) -> BlobCache:
    """An empty one of a megabyte."""
    return BlobCache(tmp_path / "cache", 10**6)


def publish(
    store: Store, folder: Path, digits: str, library: bytes, target: str = "cpu"
) -> Release:
    """A build with the same weights as all others, and a library of its own."""
    files = {"weights.safetensors": WEIGHTS, LIBRARY: library * 100_000}
    bundle = make_bundle(folder, files, build_key=digits * 32, target=target)
    return store.admit(store.propose(bundle), None)


def got(server: WebServer, release: Release, folder: Path, cache: BlobCache) -> set[str]:
    """Pulls a release; the paths of its files whose bytes came over the network."""
    server.asked.clear()
    open_releases(server.address).pull(release, folder, cache=cache)
    assert open_bundle(folder).document == release.document
    asked = {path for path, _ in server.asked}
    return {n for n, e in release.manifest.listed.items() if f"/{blob_key(e.sha256)}" in asked}


def test_a_new_release_fetches_only_what_changed(
    store: Store, server: WebServer, cache: BlobCache, tmp_path: Path
) -> None:
    """The weights of the first serve the second, and another target's; the libraries are new."""
    first = publish(store, tmp_path / "a", "aa", b"1")
    second = publish(store, tmp_path / "b", "bb", b"2")
    metal = publish(store, tmp_path / "c", "cc", b"3", target="metal")
    assert {"weights.safetensors", LIBRARY} <= got(server, first, tmp_path / "one", cache)
    for release, place in ((second, "two"), (metal, "three")):
        fetched = got(server, release, tmp_path / place, cache)
        assert LIBRARY in fetched
        assert "weights.safetensors" not in fetched
    assert got(server, first, tmp_path / "again", cache).isdisjoint(
        {"weights.safetensors", LIBRARY}
    )


def test_what_is_wrong_in_the_cache_is_fetched_anew(
    store: Store, server: WebServer, cache: BlobCache, tmp_path: Path
) -> None:
    """Changed, cut short, or a link to something else: the bundle is right, and the cache mended."""
    release = publish(store, tmp_path / "a", "aa", b"1")
    got(server, release, tmp_path / "one", cache)
    kept = tmp_path / "cache" / blob_key(release.manifest.weights.sha256).removeprefix("blobs/")
    for number, damage in enumerate((b"x" * len(WEIGHTS), WEIGHTS[:-1])):
        kept.write_bytes(damage)
        assert "weights.safetensors" in got(server, release, tmp_path / f"out{number}", cache)
        assert kept.read_bytes() == WEIGHTS
    kept.unlink()
    kept.symlink_to(tmp_path / "one" / "weights.safetensors")
    assert "weights.safetensors" in got(server, release, tmp_path / "linked", cache)


def test_changing_a_bundle_changes_no_other(
    store: Store, server: WebServer, cache: BlobCache, tmp_path: Path
) -> None:
    """Files are copies, not links."""
    release = publish(store, tmp_path / "a", "aa", b"1")
    got(server, release, tmp_path / "one", cache)
    (tmp_path / "one" / "weights.safetensors").write_bytes(b"mine")
    assert "weights.safetensors" not in got(server, release, tmp_path / "two", cache)


def test_it_grows_no_larger_than_it_may(tmp_path: Path) -> None:
    """What was used longest ago goes; what is larger than all room, or tiny, is not kept."""
    cache, source = BlobCache(tmp_path / "cache", 250_000), tmp_path / "file"

    def keep(digit: str, size: int) -> FileEntry:
        entry = FileEntry("f", digit * 64, size)
        source.write_bytes(digit.encode() * size)
        cache.take(entry, source)
        return entry

    def has(entry: FileEntry) -> bool:
        cache.give(entry, tmp_path / "given")
        found = (tmp_path / "given").exists()
        (tmp_path / "given").unlink(missing_ok=True)
        return found

    one, two = keep("1", 100_000), keep("2", 100_000)
    assert has(one)  # used just now
    three = keep("3", 100_000)
    assert [has(each) for each in (one, two, three)] == [True, False, True]
    assert not has(keep("4", 250_001))
    assert not has(keep("5", 1_000))
    assert sum(p.stat().st_size for p in (tmp_path / "cache").rglob("*") if p.is_file()) <= 250_000


def test_a_cache_that_cannot_be_written_hinders_no_pull(
    store: Store, server: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is where its folder must be; or its owner wants none."""
    release = publish(store, tmp_path / "a", "aa", b"1")
    (tmp_path / "cache").write_text("a file")
    got(server, release, tmp_path / "one", BlobCache(tmp_path / "cache", 10**6))
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(CACHE_GB, "0")
    got(server, release, tmp_path / "two", BlobCache.of_this_user())
    assert not (tmp_path / "home" / "downloads").exists()


def test_files_come_side_by_side(
    store: Store, server: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two downloads wait for each other: one after the other, neither would ever begin."""
    release = publish(store, tmp_path / "a", "aa", b"1")
    releases = open_releases(server.address)
    meeting = threading.Barrier(2, timeout=60)
    large = {blob_key(e.sha256) for e in release.manifest.listed.values() if e.bytes > 50_000}
    assert len(large) == 2
    fetch = releases._reader.get_file

    def meet(key: str, *given: object) -> None:
        if key in large:
            meeting.wait()
        fetch(key, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(releases._reader, "get_file", meet)
    counted: list[tuple[int, int]] = []
    releases.pull(release, tmp_path / "out", lambda done, total: counted.append((done, total)))
    assert counted[-1] == (release.size, release.size)
    assert [done for done, _ in counted] == sorted(done for done, _ in counted)


def test_one_failure_ends_the_others_and_nothing_appears(
    store: Store, server: WebServer, tmp_path: Path
) -> None:
    """A file that the server has lost: the pull fails by its name, and what came is kept for next."""
    release = publish(store, tmp_path / "a", "aa", b"1")
    [blob] = (tmp_path / "store" / "blobs").rglob(release.manifest.weights.sha256)
    content = blob.read_bytes()
    blob.unlink()
    with pytest.raises(StoreError, match="there is no such file"):
        open_releases(server.address).pull(release, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    blob.write_bytes(content)
    open_releases(server.address).pull(release, tmp_path / "out")
    assert open_bundle(tmp_path / "out").document == release.document
