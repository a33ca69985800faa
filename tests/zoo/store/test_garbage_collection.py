"""Sweeps: what no release needs goes, and nothing else; each test on a folder and on S3."""

from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from bundle_maker import BUILD_KEY, make_bundle, publish, published

from menagerie.format.folder import open_bundle
from menagerie.store.layout import (
    blob_key,
    candidate_key,
    is_note_key,
    lease_key,
    page_key,
    release_key,
)
from zoo.errors import ArtifactError, StoreError
from zoo.store import KeepRule, ReleaseVerdict, Store, coordination, garbage_collection
from zoo.store.coordination import hold_lease
from zoo.store.garbage_collection import sweep

if TYPE_CHECKING:
    from pathlib import Path

NO_GRACE = KeepRule(releases=1, grace_hours=0)


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
    store.objects.put_small(blob_key("f" * 64), b"of no release")
    before = store.objects.list_keys("")
    found = sweep(store.objects, NO_GRACE, dry_run=True)
    assert store.objects.list_keys("") == before
    swept = sweep(store.objects, NO_GRACE, dry_run=False)
    assert swept == found
    assert [key[-7:-5] for key in swept.releases] == ["aa", "bb"]
    assert (swept.blobs, swept.bytes, swept.notes) == (3, 2 + 2 + 13, 1)
    [left] = store.releases()
    assert left.build_key == "cc" * 32
    assert store.held([left.names])
    assert store.verdict(left) is not None
    assert store.verdict(gone) is None
    assert store.find("tiny", "cpu") == left
    assert sweep(store.objects, NO_GRACE, dry_run=False).blobs == 0


DIGEST = "ab" + "0" * 62
STRANGERS = (
    f"blobs/{DIGEST}",  # a Hugging Face cache
    f"blobs/sha256/{DIGEST}",  # an OCI layout
    f"blobs/sha256/ab/{DIGEST}/data",  # a registry
    f"blobs/cd/{DIGEST}",
    f"blobs/ab/{DIGEST}.txt",
    f"blobs/ab/{DIGEST.upper()}",
    "verdicts/2030.txt",
    f"verdicts/tiny/cpu/{DIGEST}.txt",
    "publishing/paper.json",
    "sweeping/x",
    f"leases/{'0' * 63}.json",
    "notes.txt",
)


def test_a_sweep_removes_nothing_of_others(
    place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder or bucket that is not ours, however old its files; nor beside ours in ours."""
    store = place.store()
    monkeypatch.setattr(garbage_collection, "_FORGOTTEN_HOURS", -1.0)
    for key in STRANGERS:
        store.objects.put_small(key, b"somebody's")
    swept = sweep(store.objects, NO_GRACE, dry_run=False)
    assert (swept.blobs, swept.notes, swept.kept_blobs) == (0, 0, 0)
    published(store, tmp_path, "aa")
    ours = [f"publishing/{'0' * 32}.json", lease_key("ef" * 32), blob_key(DIGEST)]
    for key in ours:
        store.objects.put_small(key, b"[]")
    swept = sweep(store.objects, NO_GRACE, dry_run=False)
    assert (swept.blobs, swept.notes) == (1, 2)
    left = set(store.objects.list_keys(""))
    assert set(STRANGERS) <= left
    assert not left & set(ours)


def test_what_the_store_writes_for_a_while_is_known_as_its_own(
    place: Any, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Notes of killed publishers, holders and sweeps are distinguished from strangers' files."""
    store = place.store()
    kept: list[str] = []
    delete = store.objects.delete

    def deleted(key: str) -> None:
        kept.append(key)
        delete(key)

    monkeypatch.setattr(store.objects, "delete", deleted)
    with hold_lease(store.objects, BUILD_KEY):
        publish(store, bundle)
    sweep(store.objects, NO_GRACE, dry_run=True)
    store.objects.put_small(blob_key(DIGEST), b"of no release")
    sweep(store.objects, NO_GRACE, dry_run=False)
    kept.remove(blob_key(DIGEST))
    kept = [key for key in kept if candidate_key.build(key) is None]  # it became a release
    assert {key.partition("/")[0] for key in kept} == {"publishing", "leases", "sweeping"}
    assert all(map(is_note_key, kept))


def test_the_latest_stays_though_it_is_old(place: Any, tmp_path: Path) -> None:
    """A validated release is not superseded by newer emulated ones."""
    store = place.store()
    validated = published(store, tmp_path, "aa", 10)
    for hour, digits in ((11, "bb"), (12, "cc")):
        published(store, tmp_path, digits, hour, state="emulated")
    assert [k[-7:-5] for k in sweep(store.objects, NO_GRACE, dry_run=False).releases] == ["bb"]
    assert store.find("tiny", "cpu").build_key == validated


def test_nothing_young_is_swept(place: Any, tmp_path: Path) -> None:
    """Within the grace, what was just uploaded and what was just superseded stays."""
    store = place.store()
    for hour, digits in ((10, "aa"), (11, "bb")):
        published(store, tmp_path, digits, hour)
    store.objects.put_small(blob_key("f" * 64), b"of a release to come")
    swept = sweep(store.objects, KeepRule(releases=1, grace_hours=1), dry_run=False)
    assert (swept.releases, swept.blobs) == ((), 0)


def test_a_policy_keeps_releases_by_number_and_by_age(
    place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many of the newest stay, and those younger than so many days, whichever is more."""
    store = place.store()
    keys = [
        published(store, tmp_path, digits, hour)
        for hour, digits in ((10, "aa"), (11, "bb"), (12, "cc"))
    ]
    now = garbage_collection._store_time(store.objects)
    # as the store's clock will have it in ten days
    monkeypatch.setattr(garbage_collection, "_store_time", lambda _: now + 10 * 86400)

    def going(releases: int, days: float) -> list[str]:
        rule = KeepRule(releases=releases, days=days, grace_hours=0)
        return [k[-69:-5] for k in sweep(store.objects, rule, dry_run=True).releases]

    assert going(1, 30) == []
    assert going(1, 9) == keys[:2]
    assert going(2, 9) == keys[:1]
    assert going(3, 0) == []


def test_a_sweep_leaves_what_a_publisher_counts_on(
    place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blob of no release that a publication reuses while the sweep is at work."""
    store = place.store()
    bundle = make_bundle(tmp_path / "bundle")
    digest = open_bundle(bundle).manifest.listed["weights.safetensors"].sha256
    store.objects.put_file(bundle / "weights.safetensors", blob_key(digest), lambda _: None)
    real = garbage_collection._removed

    def publishing(objects: Any, *things: Any, **given: Any) -> Any:
        with coordination.announce(objects, [digest]):
            return real(objects, *things, **given)

    monkeypatch.setattr(garbage_collection, "_removed", publishing)
    assert sweep(store.objects, NO_GRACE, dry_run=False).blobs == 0
    assert store.objects.size_of(blob_key(digest)) == len(b"the weights")


def test_a_publisher_waits_for_a_sweep(
    place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It uploads again what the sweep removed; a sweep that never ends is an error, not a hole."""
    store = place.store()
    bundle = make_bundle(tmp_path / "bundle")
    digest = open_bundle(bundle).manifest.listed["weights.safetensors"].sha256
    monkeypatch.setattr(coordination, "_WAIT_SECONDS", (0.01, 0.1))
    flag = f"sweeping/{'0' * 32}.json"
    store.objects.put_small(flag, json.dumps([digest]).encode())
    with pytest.raises(StoreError, match="the sweep does not end"):
        publish(store, bundle)
    assert store.releases() == []
    assert store.objects.list_keys("publishing/") == []
    store.objects.put_small(flag, json.dumps(["0" * 64]).encode())
    assert store.held([publish(store, bundle).names])


def test_a_release_that_cannot_be_read_stops_the_sweep(place: Any, tmp_path: Path) -> None:
    """Which files it needs is unknown, so none is removed."""
    store = place.store()
    published(store, tmp_path, "aa")
    store.objects.put_small(release_key("tiny", "cpu", "ef" * 32), b"{]")
    store.objects.put_small(blob_key("f" * 64), b"perhaps of that release")
    with pytest.raises(ArtifactError, match="nothing was swept"):
        sweep(store.objects, NO_GRACE, dry_run=False)
    assert store.objects.size_of(blob_key("f" * 64)) is not None


def test_uploads_of_others_are_left_alone(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep ends those to keys of blobs, and no others below its prefix."""
    monkeypatch.setattr(garbage_collection, "_store_time", lambda _: time.time() + 3600)
    objects = s3.objects()
    for key in ("blobs/sha256/x", "backup.tar", blob_key(DIGEST)):
        objects._client.create_multipart_upload(Bucket="zoo", Key=objects._prefix + key)
    assert sweep(Store(objects).objects, NO_GRACE, dry_run=False).uploads == 1
    listed = objects._client.list_multipart_uploads(Bucket="zoo", Prefix=objects._prefix)
    left = [upload["Key"].removeprefix(objects._prefix) for upload in listed["Uploads"]]
    assert left == ["backup.tar", "blobs/sha256/x"]


@pytest.mark.parametrize(
    "content",
    [b"{]", b"\xff", b"7", b'["../../x"]', b'{"ab": 1}', b" " * (8 * 2**20 + 1)],
    ids=["no JSON", "no text", "no list", "no digests", "an object", "oversized"],
)
def test_a_damaged_note_stops_no_publisher_and_no_sweep(
    place: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    """No publisher's or sweep's: a warning names it, and publishing and sweeping go on."""
    store = place.store()
    notes = [f"{folder}/{'a' * 32}.json" for folder in ("sweeping", "publishing")]
    for note in notes:
        store.objects.put_small(note, content)
    published(store, tmp_path, "aa", 10)
    published(store, tmp_path, "bb", 11)
    assert [key[-7:-5] for key in sweep(store.objects, NO_GRACE, dry_run=False).releases] == ["aa"]
    assert all(note in caplog.text for note in notes)


def test_pages_and_archives_go_with_the_age_of_their_links(
    place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before, and no file under another kind of name."""
    store = place.store()
    published(store, tmp_path, "aa", 10)
    release = store.find("tiny", "cpu")
    archive = tmp_path / "made.zip"
    archive.write_bytes(b"PK")
    store.link_page(b"<html>", "a report")
    store.put_archive(release, archive)
    store.objects.put_small("pages/notes.html", b"somebody's")
    place = page_key(hashlib.sha256(b"<html>").hexdigest())
    assert store.objects.read_small(place, 100) == b"<html>"
    assert sweep(store.objects, KeepRule(), dry_run=False).linked == 0
    monkeypatch.setattr(garbage_collection, "LINKED_DAYS", -1.0)
    assert sweep(store.objects, KeepRule(), dry_run=True).linked == 2
    assert sweep(store.objects, KeepRule(), dry_run=False).linked == 2
    assert store.objects.list_keys("pages/") == ["pages/notes.html"]
    assert store.objects.list_keys("archives/") == []
    assert store.held([release.names])
