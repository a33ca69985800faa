"""Candidates that are not promoted go in the end; what is being judged, or may yet be, stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from bundle_maker import BUILD_KEY, make_bundle, published

from menagerie.store.layout import blob_key, candidate_key
from zoo.errors import NotInStore, StoreError
from zoo.store import KeepRule, Store, garbage_collection
from zoo.store.garbage_collection import sweep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from zoo.store import Release

DAY = 86400.0
RULE = KeepRule(releases=1, candidate_days=30, grace_hours=24)


@pytest.fixture
def days_pass(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let the store's clock be so many days ahead, for sweeps."""
    real = garbage_collection._store_time

    def pass_by(days: float) -> None:
        monkeypatch.setattr(garbage_collection, "_store_time", lambda o: real(o) + days * DAY)

    return pass_by


def proposed(store: Store, folder: Path, digits: str = "aa") -> Release:
    """A candidate with a library of its own."""
    files = {"programs/main/model.so": digits.encode()}
    return store.propose(make_bundle(folder / digits, files, build_key=digits * 32))


def key_of(candidate: Release) -> str:
    """Where its document is."""
    return candidate_key(*candidate.names)


def test_a_candidate_goes_with_its_age(
    place: Any, tmp_path: Path, days_pass: Callable[[float], None]
) -> None:
    """After its days, with the files that nothing else needs; a dry run names it before."""
    store = place.store()
    released = published(store, tmp_path, "cc")
    candidate = proposed(store, tmp_path)
    days_pass(29.9)
    assert sweep(store.objects, RULE, dry_run=False).candidates == ()
    assert store.candidates() == [candidate]
    days_pass(30.1)
    found = sweep(store.objects, RULE, dry_run=True)
    assert found.candidates == (key_of(candidate),)
    assert (found.blobs, found.bytes) == (1, len("aa"))
    assert store.candidates() == [candidate]
    assert sweep(store.objects, RULE, dry_run=False) == found
    assert store.candidates() == []
    assert store.held([("tiny", "cpu", released)])
    assert not store.held([candidate.names])
    assert sweep(store.objects, RULE, dry_run=False).candidates == ()


def test_days_and_grace_of_releases_hold_for_candidates(
    place: Any, tmp_path: Path, days_pass: Callable[[float], None]
) -> None:
    """Whichever is the longest."""
    store = place.store()
    key = key_of(proposed(store, tmp_path))
    days_pass(40)

    def going(candidate_days: float, days: float, grace_hours: float) -> tuple[str, ...]:
        rule = KeepRule(candidate_days=candidate_days, days=days, grace_hours=grace_hours)
        return sweep(store.objects, rule, dry_run=True).candidates

    assert going(0, 0, 0) == going(39, 39, 39 * 24) == (key,)
    assert going(41, 0, 0) == going(0, 41, 0) == going(0, 0, 41 * 24) == ()


def test_what_was_promoted_stays(
    place: Any, tmp_path: Path, days_pass: Callable[[float], None]
) -> None:
    """It is a release, and the latest; the same file in a candidate that goes is kept for it."""
    store = place.store()
    promoted = store.admit(proposed(store, tmp_path), None)
    same = make_bundle(tmp_path / "same", {"programs/main/model.so": b"aa"}, build_key="bb" * 32)
    going = store.propose(same)
    days_pass(400)
    swept = sweep(store.objects, RULE, dry_run=False)
    assert (swept.releases, swept.candidates) == ((), (key_of(going),))
    assert store.held([promoted.names])


def test_what_is_being_judged_stays(
    place: Any, tmp_path: Path, days_pass: Callable[[float], None]
) -> None:
    """However old: pulled, proven and promoted under a hold, while sweeps come by."""
    store = place.store()
    candidate = proposed(store, tmp_path)
    days_pass(400)
    with store.hold(candidate):
        assert sweep(store.objects, RULE, dry_run=True).candidates == ()
        assert sweep(store.objects, RULE, dry_run=False).candidates == ()
        Store(store.objects, allow_unsigned=True).pull(candidate, tmp_path / "pulled")
        promoted = store.admit(candidate, None)
    assert sweep(store.objects, RULE, dry_run=False).releases == ()
    assert store.held([promoted.names])


def test_a_hold_taken_during_a_sweep_is_seen(
    place: Any, tmp_path: Path, days_pass: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the sweep's look and its deletion: the candidate is left alone."""
    store = place.store()
    candidate = proposed(store, tmp_path)
    days_pass(400)
    real = garbage_collection._removed

    def late(objects: Any, *things: Any, **given: Any) -> list[str]:
        with store.hold(candidate):
            return real(objects, *things, **given)

    monkeypatch.setattr(garbage_collection, "_removed", late)
    assert sweep(store.objects, RULE, dry_run=False).candidates == ()
    assert store.held([candidate.names])


def test_a_hold_taken_after_a_sweep_is_refused(
    place: Any, tmp_path: Path, days_pass: Callable[[float], None]
) -> None:
    """Nothing is signed whose files are gone: neither under a hold nor without one."""
    store = place.store()
    candidate = proposed(store, tmp_path)
    days_pass(400)
    sweep(store.objects, RULE, dry_run=False)
    with pytest.raises(NotInStore, match="no release"), store.hold(candidate):
        pytest.fail("there is nothing to hold")
    with pytest.raises(StoreError, match=r"of its files are gone.*Convert it again"):
        store.admit(candidate, b"a signature")
    assert store.releases() == []
    assert store.objects.list_keys("signatures/") == []


def test_damaged_candidates_go_and_strangers_stay(
    place: Any, days_pass: Callable[[float], None]
) -> None:
    """What has a candidate's name goes, sound or not; nothing else does."""
    store = place.store()
    damaged = candidate_key("tiny", "cpu", BUILD_KEY)
    for key in (damaged, "candidates/notes.txt", "candidates/tiny/cpu/notes.json"):
        store.objects.put_small(key, b"{]")
    store.objects.put_small(blob_key("f" * 64), b"of nothing")
    days_pass(400)
    swept = sweep(store.objects, RULE, dry_run=False)
    assert (swept.candidates, swept.blobs) == ((damaged,), 1)
    left = store.objects.list_keys("candidates/")
    assert left == ["candidates/notes.txt", "candidates/tiny/cpu/notes.json"]
