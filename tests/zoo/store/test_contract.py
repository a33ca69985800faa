"""What every store promises; each test runs on a folder, on S3 over HTTP, and on S3 over TLS."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, Any

import pytest
from bundle_maker import BUILD_KEY, FILES, make_bundle, publish

from menagerie.format.bundle_manifest import MAX_MANIFEST_BYTES
from menagerie.format.folder import open_bundle
from menagerie.store.layout import blob_key, release_key, verdict_key
from zoo.errors import ArtifactError, HashMismatch, NotInStore, StoreError, TooLarge, UsageError
from zoo.store.coordination import publishing
from zoo.store.inspection import probe

if TYPE_CHECKING:
    from pathlib import Path

    from zoo.store import Store

RELEASE = release_key("tiny", "cpu", BUILD_KEY)


def key_of(bundle: Path, name: str) -> str:
    """Where the store keeps a file of the bundle."""
    return blob_key(open_bundle(bundle).manifest.listed[name].sha256)


def count_puts(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys that are uploaded from now on."""
    keys: list[str] = []
    real = store.objects.put_file

    def put_file(source: Path, key: str, advance: Any) -> None:
        keys.append(key)
        real(source, key, advance)

    monkeypatch.setattr(store.objects, "put_file", put_file)
    return keys


def test_an_empty_store_is_empty(place: Any) -> None:
    """Nothing is listed, nothing is found, and the message says what to do."""
    store = place.store()
    if place.root is not None:
        place.root.mkdir()
    assert store.releases() == []
    assert not store.held([("tiny", "cpu", BUILD_KEY)])
    with pytest.raises(NotInStore, match=r"no release of tiny for cpu\. It is empty: publish with"):
        store.find("tiny", "cpu")


def test_what_is_published_can_be_pulled(place: Any, bundle: Path, tmp_path: Path) -> None:
    """The pulled folder is the published one, byte for byte, and opens."""
    published = publish(place.store(), bundle)
    store = place.store()
    assert store.releases() == [published]
    assert store.held([("tiny", "cpu", BUILD_KEY)])
    assert store.find("tiny", "cpu") == store.find("tiny", "cpu", BUILD_KEY) == published
    out = store.pull(published, tmp_path / "deep" / "out")
    assert out == tmp_path / "deep" / "out"
    pulled = open_bundle(out)
    assert pulled.document == open_bundle(bundle).document
    assert {name: pulled.file(name).read_bytes() for name in FILES} == FILES
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_a_large_file_comes_back(place: Any, tmp_path: Path) -> None:
    """Eleven megabytes travel (in parts, to S3), and progress rises to the total both ways."""
    weights = os.urandom(11 * 2**20 + 7)
    bundle = make_bundle(tmp_path / "large", {"weights.safetensors": weights})
    seen: list[tuple[int, int]] = []
    store = place.store()
    files = open_bundle(bundle).manifest.listed
    with publishing(store.objects, bundle, files, lambda done, total: seen.append((done, total))):
        assert seen
    release = publish(store, bundle)
    for _ in range(2):
        done = [each for each, _ in seen]
        assert done == sorted(done)
        assert seen[0] == (0, release.size)
        assert seen[-1] == (release.size, release.size)
        seen.clear()
        store.pull(release, tmp_path / "out", lambda done, total: seen.append((done, total)))
    assert (tmp_path / "out" / "weights.safetensors").read_bytes() == weights


def test_an_empty_file_comes_back(place: Any, tmp_path: Path) -> None:
    """No bytes are bytes too."""
    bundle = make_bundle(tmp_path / "empty", {"report.json": b""})
    store = place.store()
    out = store.pull(publish(store, bundle), tmp_path / "out")
    assert (out / "report.json").read_bytes() == b""


def test_publishing_again_moves_nothing(
    place: Any, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time neither a file nor the summary is written."""
    store = place.store()
    published = publish(store, bundle)
    monkeypatch.setattr(store.objects, "put_file", None)
    monkeypatch.setattr(store.objects, "put_small", None)
    assert publish(store, bundle) == published


def test_the_first_of_equal_builds_stays(place: Any, bundle: Path, tmp_path: Path) -> None:
    """A build made again, with other bytes, gives the release that is there."""
    store = place.store()
    published = publish(store, bundle)
    again = make_bundle(tmp_path / "again", {"programs/main/model.so": b"other"})
    assert publish(store, again) == published
    assert store.objects.size_of(key_of(again, "programs/main/model.so")) is None


def test_equal_files_are_stored_once(
    place: Any, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another build with the same weights uploads only what differs; within a bundle as well."""
    store = place.store()
    publish(store, bundle)
    puts = count_puts(store, monkeypatch)
    same = {"one.bin": b"twice", "two.bin": b"twice"}
    other = make_bundle(tmp_path / "other", same, build_key="cd" * 32)
    release = publish(store, other)
    assert puts == [key_of(other, "one.bin")]
    assert (store.pull(release, tmp_path / "out") / "two.bin").read_bytes() == b"twice"


def test_unproven_bundles_are_refused(place: Any, tmp_path: Path) -> None:
    """What is only lowered is not published, not even in part."""
    store = place.store()
    lowered = make_bundle(tmp_path / "lowered", state="lowered")
    with pytest.raises(StoreError, match=r"lowered but not proven\. Validate it"):
        publish(store, lowered)
    assert store.objects.list_keys("") == []


def test_damaged_bundles_are_refused(place: Any, bundle: Path) -> None:
    """A bundle whose hash is wrong is not published, not even in part."""
    (bundle / "weights.safetensors").write_bytes(b"the Weights")
    store = place.store()
    with pytest.raises(ArtifactError):
        publish(store, bundle)
    assert store.objects.list_keys("") == []


def test_releases_are_chosen_by_model_and_target(place: Any, tmp_path: Path) -> None:
    """All, one model's, one target's; and a wrong name is answered with the right ones."""
    store = place.store()
    names = [("one", "cpu"), ("one", "metal"), ("two", "cpu")]
    for model, target in names:
        publish(store, make_bundle(tmp_path / (model + target), model=model, target=target))
    assert [(r.model, r.target) for r in store.releases()] == names
    assert [(r.model, r.target) for r in store.releases("one")] == names[:2]
    assert [(r.model, r.target) for r in store.releases("one", "metal")] == names[1:2]
    assert [(r.model, r.target) for r in store.releases(target="cpu")] == [names[0], names[2]]
    with pytest.raises(NotInStore, match=r"no release of three for cpu. It has one/cpu, one/metal"):
        store.find("three", "cpu")
    with pytest.raises(NotInStore, match=r"of two for metal. It has one for cpu: .* --target"):
        store.find("two", "metal")
    with pytest.raises(NotInStore, match="no release cdcd"):
        store.find("one", "cpu", "cd" * 32)


def publish_many(store: Store, folder: Path, releases: list[tuple[str, str, str]]) -> None:
    """Publishes builds, each given by two digits, its state, and its hour."""
    for digits, state, hour in releases:
        publish(
            store,
            make_bundle(
                folder / digits,
                build_key=digits * 32,
                state=state,
                created=f"2030-01-31T{hour}:00:00+00:00",
            ),
        )


@pytest.mark.parametrize(
    ("releases", "latest"),
    [
        ([("aa", "validated", "10"), ("bb", "validated", "11")], "bb"),
        ([("bb", "validated", "11"), ("aa", "validated", "10")], "bb"),
        ([("aa", "validated", "10"), ("bb", "emulated", "11")], "aa"),
        ([("bb", "emulated", "11"), ("aa", "validated", "10")], "aa"),
        ([("aa", "emulated", "10"), ("bb", "emulated", "11")], "bb"),
    ],
)
def test_latest_moves_only_forward(
    place: Any, tmp_path: Path, releases: list[tuple[str, str, str]], latest: str
) -> None:
    """Validated goes before emulated, then newer before older, in whatever order they come."""
    store = place.store()
    publish_many(store, tmp_path, releases)
    assert store.find("tiny", "cpu").build_key == latest * 32


def test_latest_is_what_remains(place: Any, tmp_path: Path) -> None:
    """A release that was removed is the latest no more."""
    store = place.store()
    publish_many(store, tmp_path, [("aa", "validated", "10"), ("bb", "validated", "11")])
    store.objects.delete(release_key("tiny", "cpu", "bb" * 32))
    assert store.find("tiny", "cpu").build_key == "aa" * 32


def test_strangers_among_the_releases_do_no_harm(
    place: Any, bundle: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Other files are passed over; a document that cannot be read is left out with a warning."""
    store = place.store()
    published = publish(store, bundle)
    for key in ("releases/notes", "releases/tiny/cpu/notes.txt", "releases/tiny/cpu/x/y/z.json"):
        store.objects.put_small(key, b"hello")
    later = b'{"format": "menagerie-bundle", "version": 3}'
    store.objects.put_small(release_key("tiny", "cpu", "cd" * 32), later)
    store.objects.put_small(release_key("tiny", "cpu", "ef" * 32), published.document)
    assert store.releases() == [published]
    assert store.find("tiny", "cpu") == published
    assert "only 2 is known here" in caplog.text
    assert "is the document of another release" in caplog.text
    with pytest.raises(ArtifactError, match="Upgrade Menagerie"):
        store.find("tiny", "cpu", "cd" * 32)


def test_a_release_that_lost_a_file_is_healed(place: Any, bundle: Path, tmp_path: Path) -> None:
    """It is not `has`, so the work is done again, and publishing completes it."""
    store = place.store()
    publish(store, bundle)
    store.objects.delete(key_of(bundle, "weights.safetensors"))
    assert not store.held([("tiny", "cpu", BUILD_KEY)])
    with pytest.raises(NotInStore, match="Publish it again"):
        store.pull(store.find("tiny", "cpu"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    publish(store, bundle)
    assert store.held([("tiny", "cpu", BUILD_KEY)])
    store.pull(store.find("tiny", "cpu"), tmp_path / "out")


@pytest.mark.parametrize("damage", [b"the Weights", b"the"])
def test_damaged_bytes_are_never_handed_out(
    place: Any, bundle: Path, tmp_path: Path, damage: bytes
) -> None:
    """A file that changed in the store is refused by its hash; the target folder stays absent."""
    store = place.store()
    release = publish(store, bundle)
    store.objects.put_small(key_of(bundle, "weights.safetensors"), damage)
    with pytest.raises(HashMismatch, match=r"not the ones that were published\. Remove that file"):
        store.pull(release, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    store.objects.delete(key_of(bundle, "weights.safetensors"))
    publish(store, bundle)
    store.pull(release, tmp_path / "out")


def partial_of(out: Path) -> Path:
    """Where an interrupted pull into `out` leaves its files."""
    return out.with_name(f".{out.name}.{BUILD_KEY[:16]}.partial")


def test_an_interrupted_pull_goes_on(
    place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was downloaded before is not downloaded again."""
    weights = os.urandom(300_000)
    store = place.store()
    release = publish(store, make_bundle(tmp_path / "b", {"weights.safetensors": weights}))
    partial = partial_of(tmp_path / "out")
    partial.mkdir()
    (partial / "weights.safetensors").write_bytes(weights[:200_000])
    (partial / "stranger").write_bytes(b"of an earlier document")
    moved: list[int] = []
    real = store.objects.get_file

    def get_file(key: str, path: Path, size: int, advance: Any) -> None:
        real(key, path, size, lambda count: (moved.append(count), advance(count))[0])

    monkeypatch.setattr(store.objects, "get_file", get_file)
    seen: list[int] = []
    out = store.pull(release, tmp_path / "out", lambda done, _: seen.append(done))
    assert sum(moved) == release.size - 200_000
    assert seen[-1] == release.size
    assert (out / "weights.safetensors").read_bytes() == weights
    assert not partial.exists()


def test_wrong_bytes_of_an_interrupted_pull_are_replaced(
    place: Any, bundle: Path, tmp_path: Path
) -> None:
    """A half file that is not the release's is noticed and fetched anew."""
    store = place.store()
    release = publish(store, bundle)
    partial = partial_of(tmp_path / "out")
    partial.mkdir()
    (partial / "weights.safetensors").write_bytes(b"THE")
    (partial / "report.json").write_bytes(b"far too long")
    store.pull(release, tmp_path / "out")
    assert open_bundle(tmp_path / "out").document == release.document


def test_pulling_respects_what_is_there(place: Any, bundle: Path, tmp_path: Path) -> None:
    """The same release again costs nothing; anything else in the way is left alone."""
    store = place.store()
    release = publish(store, bundle)
    out = store.pull(release, tmp_path / "out")
    assert store.pull(release, out) == out
    (out / "mine.txt").write_text("keep me")
    with pytest.raises(UsageError, match=r"not empty\. Remove it or choose another"):
        store.pull(release, out)
    assert (out / "mine.txt").read_text() == "keep me"


def test_two_pulls_into_one_place_do_not_mix(place: Any, bundle: Path, tmp_path: Path) -> None:
    """The second is refused until the first ends."""
    store = place.store()
    release = publish(store, bundle)
    partial = partial_of(tmp_path / "out")
    partial.mkdir()
    holder = os.open(partial, os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="another process is pulling"):
            store.pull(release, tmp_path / "out")
    finally:
        os.close(holder)
    store.pull(release, tmp_path / "out")


def test_an_oversized_document_is_not_read(place: Any) -> None:
    """Reading something small is bounded."""
    objects = place.objects()
    objects.put_small("notes/one", bytes(1001))
    with pytest.raises(TooLarge, match="more than 1,000 bytes"):
        objects.read_small("notes/one", 1000)


def test_what_is_oversized_is_passed_over(
    place: Any, bundle: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A document or a verdict that no publisher wrote hides no release."""
    store = place.store()
    published = publish(store, bundle)
    other = "cd" * 32
    huge = b" " * (MAX_MANIFEST_BYTES + 1)
    store.objects.put_small(release_key("tiny", "cpu", other), huge)
    store.objects.put_small(verdict_key(*published.names), huge)
    assert store.releases() == [published]
    assert store.find("tiny", "cpu") == published
    assert store.verdict(published) is None
    assert "more than" in caplog.text
    with pytest.raises(TooLarge, match="Remove it"):
        store.find("tiny", "cpu", other)


def test_the_doctor_finds_a_sound_store_sound(place: Any) -> None:
    """Every operation is tried, and nothing is left behind."""
    store = place.store()
    found = probe(store.objects)
    assert {f.detail for f in found} == {""}
    assert found[-1].operation == "remove them"
    assert len(found) == 6
    assert store.objects.list_keys("") == []
