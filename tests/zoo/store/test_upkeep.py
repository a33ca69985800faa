"""Confirmations, the census, leases and sweeps; each test on a folder and on S3."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from bundle_maker import BUILD_KEY, make_bundle

from zoo.artifact.bundle import open_bundle
from zoo.artifact.manifest import ReleaseState
from zoo.errors import ArtifactError, StoreError
from zoo.store import KeepRule, Patience, ReleaseVerdict
from zoo.store import sweep as sweeping
from zoo.store.layout import blob_key, lease_key, release_key

if TYPE_CHECKING:
    from pathlib import Path

    from zoo.store import Store

QUICK = Patience(renew=0.05, look=0.02, dead=0.5, settle=0.02)
NO_GRACE = KeepRule(releases=1, grace_hours=0)


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the census keeps documents."""
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def published(store: Store, folder: Path, digits: str, hour: int = 10, **changes: Any) -> str:
    """Publishes a build with files of its own; its key."""
    files = {"programs/main/model.so": digits.encode()}
    created = f"2030-01-31T{hour}:00:00+00:00"
    bundle = make_bundle(
        folder / f"{digits}{hour}", files, build_key=digits * 32, created=created, **changes
    )
    return store.publish(bundle).build_key


def test_a_device_confirms_an_emulated_release(place: Any, tmp_path: Path) -> None:
    """The same build, validated, goes before the emulated one, and `latest` moves to it at once."""
    store = place.store()
    key = published(store, tmp_path, "aa", state="emulated")
    published(store, tmp_path, "bb", hour=11, state="emulated")
    assert store.find("tiny", "cpu").build_key == "bb" * 32
    pulled = store.pull(store.find("tiny", "cpu", key), tmp_path / "out")
    confirmed = make_bundle(
        tmp_path / "confirmed", {"report.json": b"on a device"}, build_key=key, state="validated"
    )
    release = store.publish(confirmed)
    assert release.manifest.state is ReleaseState.VALIDATED
    assert store.find("tiny", "cpu") == release
    assert place.store().find("tiny", "cpu", key) == release
    assert [r.manifest.state.value for r in store.releases()] == ["emulated", "validated"]
    assert store.publish(pulled) == release  # what is confirmed stays so
    out = store.pull(release, tmp_path / "again")
    assert (out / "report.json").read_bytes() == b"on a device"


def test_a_damaged_confirmation_hides_nothing(place: Any, tmp_path: Path) -> None:
    """The emulated release is still there to be found."""
    store = place.store()
    key = published(store, tmp_path, "aa", state="emulated")
    store._objects.put_small(release_key("tiny", "cpu", key, confirmed=True), b"{]")
    assert store.find("tiny", "cpu", key).manifest.state is ReleaseState.EMULATED


def test_the_census_says_what_has_says(place: Any, tmp_path: Path, own_home: Path) -> None:
    """Whole builds with their states; one that lost a file, and a stranger, are not among them."""
    store = place.store()
    assert store.builds() == {}
    whole = published(store, tmp_path, "aa")
    holed = published(store, tmp_path, "bb")
    emulated = published(store, tmp_path, "cc", state="emulated", target="metal")
    expected = {
        ("tiny", "cpu", whole): ReleaseState.VALIDATED,
        ("tiny", "cpu", holed): ReleaseState.VALIDATED,
        ("tiny", "metal", emulated): ReleaseState.EMULATED,
    }
    assert store.builds() == expected
    lost = open_bundle(tmp_path / "bb10").manifest.files["programs/main/model.so"].sha256
    store._objects.delete(blob_key(lost))
    store._objects.put_small(release_key("tiny", "cpu", "ef" * 32), b"{]")
    del expected["tiny", "cpu", holed]
    assert store.builds() == expected
    for kept in (own_home / "documents").rglob("*.json"):
        kept.write_text("damaged")
    assert store.builds() == expected
    assert all(store.has(*build) for build in expected)


def test_a_second_census_reads_no_document(
    place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the two listings are asked of the store."""
    store = place.store()
    published(store, tmp_path, "aa")
    first = store.builds()
    monkeypatch.setattr(store._objects, "read_small", None)
    assert store.builds() == first


def test_a_lease_is_held_by_one(place: Any) -> None:
    """The second waits, learns by whom it is held, and that it waited."""
    order: list[str] = []
    first, second = place.store(), place.store()
    waiting = threading.Event()

    def wait() -> None:
        def told(holder: str) -> None:
            order.append(holder)
            waiting.set()

        with second.claim(BUILD_KEY, QUICK, told) as waited:
            order.append(f"waited {waited}")

    with first.claim(BUILD_KEY, QUICK) as waited:
        assert not waited
        thread = threading.Thread(target=wait)
        thread.start()
        assert waiting.wait(20)
        order.append("done")
    thread.join()
    assert order[0].startswith(f"process {os.getpid()} on ")
    assert order[1:] == ["done", "waited True"]
    assert first._objects.list_keys("") == []


def note(host: str, process: int) -> bytes:
    """A lease's note, of somebody who does not renew it."""
    return json.dumps({"owner": "x", "host": host, "process": process, "beat": 3}).encode()


def test_a_dead_holder_does_not_block(place: Any) -> None:
    """On another host it is given up after a while without a beat; on this one, at once."""
    store = place.store()
    store._objects.put_small(lease_key(BUILD_KEY), note("elsewhere", 1))
    with store.claim(BUILD_KEY, QUICK) as waited:
        assert waited
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    import socket

    store._objects.put_small(lease_key(BUILD_KEY), note(socket.gethostname(), ended.pid))
    with store.claim(BUILD_KEY, QUICK.model_copy(update={"dead": 1e6})) as waited:
        assert not waited


def test_a_holder_whose_clock_is_wrong_keeps_its_lease(place: Any) -> None:
    """Only changes count, no time that anybody wrote down; a damaged note is no note."""
    store = place.store()
    beats = iter(range(100))
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(0.1):
            text = note("elsewhere", 1).replace(b'"beat": 3', f'"beat": {next(beats)}'.encode())
            store._objects.put_small(lease_key(BUILD_KEY), text)

    store._objects.put_small(lease_key(BUILD_KEY), note("elsewhere", 1))
    thread = threading.Thread(target=beat)
    told = threading.Event()
    thread.start()

    def take() -> None:
        with place.store().claim(BUILD_KEY, QUICK, lambda _: told.set()):
            assert stop.is_set()

    taker = threading.Thread(target=take)
    taker.start()
    assert told.wait(20)
    taker.join(QUICK.dead * 2)
    assert taker.is_alive()
    stop.set()
    taker.join()
    thread.join()
    store._objects.put_small(lease_key(BUILD_KEY), b"{]")
    with store.claim(BUILD_KEY, QUICK) as waited:
        assert not waited


def test_a_sweep_removes_only_what_no_release_needs(place: Any, tmp_path: Path) -> None:
    """Superseded builds, their own files and verdicts go; shared files and the latest stay."""
    store = place.store()
    for hour, digits in ((10, "aa"), (11, "bb"), (12, "cc")):
        published(store, tmp_path, digits, hour)
    gone = store.find("tiny", "cpu", "aa" * 32)
    for build_key in ("aa" * 32, "cc" * 32):
        store.note(
            ReleaseVerdict(
                model="tiny",
                target="cpu",
                build_key=build_key,
                passed=True,
                detail="",
                when="2030-01-31T12:00:00+00:00",
            )
        )
    store._objects.put_small(blob_key("f" * 64), b"of no release")
    before = store._objects.list_keys("")
    found = store.sweep(NO_GRACE, dry_run=True)
    assert store._objects.list_keys("") == before
    swept = store.sweep(NO_GRACE, dry_run=False)
    assert swept == found
    assert [key[-7:-5] for key in swept.releases] == ["aa", "bb"]
    assert (swept.blobs, swept.bytes, swept.notes) == (3, 2 + 2 + 13, 1)
    [left] = store.releases()
    assert left.build_key == "cc" * 32
    assert store.has(*left.names)
    assert store.verdict(left) is not None
    assert store.verdict(gone) is None
    assert store.find("tiny", "cpu") == left
    assert store.sweep(NO_GRACE, dry_run=False).blobs == 0


def test_the_latest_stays_though_it_is_old(place: Any, tmp_path: Path) -> None:
    """A validated release is not superseded by newer emulated ones."""
    store = place.store()
    validated = published(store, tmp_path, "aa", 10)
    for hour, digits in ((11, "bb"), (12, "cc")):
        published(store, tmp_path, digits, hour, state="emulated")
    assert [k[-7:-5] for k in store.sweep(NO_GRACE, dry_run=False).releases] == ["bb"]
    assert store.find("tiny", "cpu").build_key == validated


def test_nothing_young_is_swept(place: Any, tmp_path: Path) -> None:
    """Within the grace, what was just uploaded and what was just superseded stays."""
    store = place.store()
    for hour, digits in ((10, "aa"), (11, "bb")):
        published(store, tmp_path, digits, hour)
    store._objects.put_small(blob_key("f" * 64), b"of a release to come")
    swept = store.sweep(KeepRule(releases=1, grace_hours=1), dry_run=False)
    assert (swept.releases, swept.blobs) == ((), 0)


def test_a_sweep_leaves_what_a_publisher_counts_on(
    place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blob of no release that a publication reuses while the sweep is at work."""
    store = place.store()
    bundle = make_bundle(tmp_path / "bundle")
    digest = open_bundle(bundle).manifest.files["weights.safetensors"].sha256
    store._objects.put_file(bundle / "weights.safetensors", blob_key(digest), lambda _: None)
    real = sweeping._remove

    def publishing(objects: Any, batch: Any) -> Any:
        with sweeping.announce(objects, [digest]):
            return real(objects, batch)

    monkeypatch.setattr(sweeping, "_remove", publishing)
    assert store.sweep(NO_GRACE, dry_run=False).blobs == 0
    assert store._objects.size_of(blob_key(digest)) == len(b"the weights")


def test_a_publisher_waits_for_a_sweep(
    place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It uploads again what the sweep removed; a sweep that never ends is an error, not a hole."""
    store = place.store()
    bundle = make_bundle(tmp_path / "bundle")
    digest = open_bundle(bundle).manifest.files["weights.safetensors"].sha256
    monkeypatch.setattr(sweeping, "_WAIT_SECONDS", (0.01, 0.1))
    store._objects.put_small("sweeping/x.json", json.dumps([digest]).encode())
    with pytest.raises(StoreError, match="the sweep does not end"):
        store.publish(bundle)
    assert store.releases() == []
    assert store._objects.list_keys("publishing/") == []
    store._objects.put_small("sweeping/x.json", json.dumps(["0" * 64]).encode())
    assert store.has(*store.publish(bundle).names)


def test_a_release_that_cannot_be_read_stops_the_sweep(place: Any, tmp_path: Path) -> None:
    """Nobody knows which files it needs, so none is removed."""
    store = place.store()
    published(store, tmp_path, "aa")
    store._objects.put_small(release_key("tiny", "cpu", "ef" * 32), b"{]")
    store._objects.put_small(blob_key("f" * 64), b"perhaps of that release")
    with pytest.raises(ArtifactError, match="nothing was swept"):
        store.sweep(NO_GRACE, dry_run=False)
    assert store._objects.size_of(blob_key("f" * 64)) is not None


def test_a_link_leads_a_browser_to_one_file(place: Any, tmp_path: Path) -> None:
    """On S3 an address that needs no credentials, for a while; in a folder there is none."""
    store = place.store()
    bundle = make_bundle(tmp_path / "bundle", {"report.html": b"<p>fine</p>"})
    release = store.publish(bundle)
    address = store.link(release, "report.html", 60)
    if place.root is not None:
        assert address is None
        return
    authority = place.options.ca_bundle
    context = ssl.create_default_context(cafile=authority) if authority is not None else None
    with urllib.request.urlopen(address, context=context) as answer:  # noqa: S310
        assert answer.read() == b"<p>fine</p>"
        assert answer.headers["content-type"].startswith("text/html")
    library = store.link(release, "programs/main/model.so", 60)
    with urllib.request.urlopen(library, context=context) as answer:  # noqa: S310
        assert 'filename="tiny-cpu-model.so"' in answer.headers["content-disposition"]
    with pytest.raises(urllib.error.HTTPError, match=r"HTTP Error 40[013]"):
        urllib.request.urlopen(address.replace("Expires=60", "Expires=61"), context=context)  # noqa: S310
