"""Confirmations, what is held and links; each test on a folder and on S3."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from bundle_maker import make_bundle, publish, published

from menagerie.format.bundle_manifest import ReleaseState
from menagerie.format.folder import open_bundle
from menagerie.store.layout import blob_key, candidate_key, release_key

if TYPE_CHECKING:
    from pathlib import Path

    from menagerie.store.layout import Build
    from zoo.store import Store


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
    release = publish(store, confirmed)
    assert release.manifest.state is ReleaseState.VALIDATED
    assert store.find("tiny", "cpu") == release
    assert place.store().find("tiny", "cpu", key) == release
    assert [r.manifest.state.value for r in store.releases()] == ["emulated", "validated"]
    assert publish(store, pulled) == release  # what is confirmed stays so
    out = store.pull(release, tmp_path / "again")
    assert (out / "report.json").read_bytes() == b"on a device"


def test_a_damaged_confirmation_hides_nothing(place: Any, tmp_path: Path) -> None:
    """The emulated release is still there to be found."""
    store = place.store()
    key = published(store, tmp_path, "aa", state="emulated")
    store.objects.put_small(release_key("tiny", "cpu", key, confirmed=True), b"{]")
    assert store.find("tiny", "cpu", key).manifest.state is ReleaseState.EMULATED


ABSENT = [("tiny", "cpu", f"{number:064x}") for number in range(20)]


def states(store: Store, digits: str) -> dict[Build, ReleaseState]:
    """Of builds by their keys' digits; the same whether the store is asked about few or many."""
    keys = [digits[at : at + 2] * 32 for at in range(0, len(digits), 2)]
    asked = [("tiny", target, key) for target in ("cpu", "metal") for key in keys]
    few = {build: manifest for each in asked for build, manifest in store.held([each]).items()}
    assert store.held([*asked, *ABSENT]) == few
    return {build: manifest.state for build, manifest in few.items()}


def test_what_is_held_is_there_to_the_last_file(place: Any, tmp_path: Path) -> None:
    """Whole builds with their states; one that lost a file, and a stranger, are not among them."""
    store = place.store()
    assert store.held([]) == {} == states(store, "aabb")
    whole = published(store, tmp_path, "aa")
    holed = published(store, tmp_path, "bb")
    emulated = published(store, tmp_path, "cc", state="emulated", target="metal")
    expected = {
        ("tiny", "cpu", whole): ReleaseState.VALIDATED,
        ("tiny", "cpu", holed): ReleaseState.VALIDATED,
        ("tiny", "metal", emulated): ReleaseState.EMULATED,
    }
    assert states(store, "aabbcc") == expected
    lost = open_bundle(tmp_path / "bb10").manifest.listed["programs/main/model.so"].sha256
    store.objects.delete(blob_key(lost))
    store.objects.put_small(release_key("tiny", "cpu", "ef" * 32), b"{]")
    del expected["tiny", "cpu", holed]
    assert states(store, "aabbccef") == expected
    stray = published(store, tmp_path, "dd")  # no candidate is called confirmed
    document = store.objects.read_small(release_key("tiny", "cpu", stray), 2**20)
    store.objects.delete(release_key("tiny", "cpu", stray))
    store.objects.put_small(candidate_key("tiny", "cpu", stray, confirmed=True), document)
    assert states(store, "aabbccddef") == expected


def test_a_link_leads_a_browser_to_one_file(place: Any, tmp_path: Path) -> None:
    """On S3 an address that needs no credentials, for a while; in a folder there is none."""
    store = place.store()
    bundle = make_bundle(tmp_path / "bundle", {"report.html": b"<p>fine</p>"})
    release = publish(store, bundle)
    address = store.link(release, "report.html")
    if place.root is not None:
        assert address is None
        return
    authority = place.given.get("verify")
    context = ssl.create_default_context(cafile=authority) if authority is not None else None
    with urllib.request.urlopen(address, context=context) as answer:  # noqa: S310
        assert answer.read() == b"<p>fine</p>"
        assert answer.headers["content-type"].startswith("text/html")
    library = store.link(release, "programs/main/model.so")
    with urllib.request.urlopen(library, context=context) as answer:  # noqa: S310
        assert 'filename="tiny-cpu-model.so"' in answer.headers["content-disposition"]
    with pytest.raises(urllib.error.HTTPError, match=r"HTTP Error 40[013]"):
        urllib.request.urlopen(address.replace("Expires=604800", "Expires=604801"), context=context)  # noqa: S310
