"""Removal of files that no release needs, while other processes publish.

Nothing is locked: publishers announce the blobs and candidates that they rely on, and a sweep
announces what it is about to remove (`zoo.store.coordination`).

Only files under keys of our own form are considered, so foreign files stay, even in a folder that
is not a store.
"""

from __future__ import annotations

import base64
import logging
import re
import uuid
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import ConfigDict, Field

from menagerie.format.bundle_manifest import (
    MAX_MANIFEST_BYTES,
    BundleManifest,
    ReleaseState,
    moment,
    parse_manifest,
)
from menagerie.store.base import StoredFile
from menagerie.store.layout import (
    BLOBS,
    PUBLISHING,
    SWEEPING,
    archive_key,
    blob_key,
    candidate_key,
    is_blob_key,
    is_linked_key,
    is_note_key,
    lease_key,
    ledger_key,
    page_key,
    release_key,
    submission_key,
    verdict_key,
)
from menagerie.trust.ledger import MAX_LEDGER_BYTES, Ledger
from menagerie.typed_json import Malformed, from_json, load
from zoo.base_models import Frozen
from zoo.errors import ArtifactError, MenagerieError, NotInStore, StoreUnreachable, TooLarge
from zoo.store.base import ObjectStore
from zoo.store.coordination import noted, sweeping
from zoo.store.submissions import listed, read_submission

_log = logging.getLogger(__name__)

_DIGEST = re.compile(rb"\b[0-9a-f]{64}\b")
_BATCH = 100  # removals between two checks of what publishers need
_HOUR = 3600.0
LINKED_DAYS = 21.0  # for which pages and archives stay: three times as long as links to them
_FORGOTTEN_HOURS = 7 * 24.0  # an older note was left by a killed process
_Days = Annotated[float, Field(ge=0, le=365.0 * 100)]


class KeepRule(Frozen):
    """The files that a sweep keeps."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    releases: int = Field(default=3, ge=1, le=1000, title="Releases kept")
    """So many of the newest of every model and platform; the latest always stays."""
    days: _Days = Field(default=0.0, title="Days")
    """For so many days a release stays, however many came after it."""
    candidate_days: _Days = Field(default=30.0, title="Days of candidates")
    """So long a build stays that is not promoted; never shorter than a release."""
    submissions: int = Field(default=20, ge=0, le=1000, title="Submissions kept")
    """So many of the newest manifest folders that `zoo submit` put there."""
    grace_hours: float = Field(default=24.0, ge=0, le=24.0 * 365, title="Grace")
    """Hours for which anything stays, by the store's own clock."""
    pass_damaged: bool = Field(default=False, title="Pass damaged releases")
    """Go on where a release cannot be read; what it may name stays."""


class SweepResult(Frozen):
    """The files that a sweep removed, or would remove."""

    releases: tuple[str, ...] = ()  # keys of the removed documents
    candidates: tuple[str, ...] = ()  # likewise
    submissions: int = 0
    blobs: int = 0
    bytes: int = 0
    notes: int = 0  # of killed processes, and verdicts on releases that are gone
    uploads: int = 0
    linked: int = 0  # pages and archives that outlived their links
    kept_releases: int = 0
    kept_blobs: int = 0

    @property
    def documents(self) -> tuple[str, ...]:
        """The keys of all removed documents: releases, then candidates."""
        return self.releases + self.candidates


def sweep(objects: ObjectStore, rule: KeepRule, *, dry_run: bool) -> SweepResult:
    """Remove old releases, blobs that no release names, and leftovers of killed processes.

    With `dry_run`, only count them. Raise StoreError if an operation of the store fails; releases
    are then as complete as before. Raise ArtifactError if a release cannot be read, because the
    blobs that it needs are then unknown.
    """
    now = _store_time(objects)
    # Blobs are listed before releases, so that blobs written later are not touched.
    blobs = [blob for blob in objects.list_files(BLOBS) if is_blob_key(blob.key)]
    documents, unreadable = _documents(objects, rule)
    old = now - rule.grace_hours * _HOUR
    old_release = min(old, now - rule.days * 24 * _HOUR)
    going = _superseded(documents, rule, old_release, _in_use(objects))
    stale = min(old_release, now - rule.candidate_days * 24 * _HOUR)
    waiting = _older(objects, (candidate_key.folder,), stale, candidate_key.build)
    proposed = _removed(objects, waiting, dry_run=dry_run)
    gone = {*going, *proposed}
    kept = {key: manifest for key, (_, manifest) in documents.items() if key not in gone}
    beyond = {submission_key(digest) for digest in listed(objects)[rule.submissions :]}
    submitted = _older(objects, (submission_key.folder,), old, beyond.__contains__)
    needed = _digests(kept.values()) | unreadable | _submitted(objects, set(submitted))
    stay = {None, *map(release_key.build, kept)}
    spare = {b.key: b.bytes for b in blobs if b.modified <= old and b.key not in needed}
    forgotten = now - _FORGOTTEN_HOURS * _HOUR
    notes = _older(objects, (PUBLISHING, SWEEPING, lease_key.folder), forgotten)
    verdicts = objects.list_keys(verdict_key.folder)
    notes += [key for key in verdicts if verdict_key.build(key) not in stay]
    outlived = now - LINKED_DAYS * 24 * _HOUR
    linked = _older(objects, (page_key.folder, archive_key.folder), outlived, is_linked_key)
    uploads = 0
    if not dry_run:

        def needed_now() -> set[str]:
            found, unread = _documents(objects, rule)
            manifests = (manifest for _, manifest in found.values())
            return _digests(manifests) | unread | _submitted(objects, set())

        beside = [key for each in going for key in _beside(each)]
        for key in [*going, *submitted, *notes, *linked, *beside]:
            objects.delete(key)
        spare = {key: spare[key] for key in _removed(objects, list(spare), needed_now)}
        uploads = objects.abandon_uploads(old, lambda key: is_blob_key(key) or is_linked_key(key))
    return SweepResult(
        releases=tuple(going),
        candidates=tuple(proposed),
        submissions=len(submitted),
        blobs=len(spare),
        bytes=sum(spare.values()),
        notes=len(notes),
        uploads=uploads,
        linked=len(linked),
        kept_releases=sum(release_key.build(key) is not None for key in kept),
        kept_blobs=len(blobs) - len(spare),
    )


def _store_time(objects: ObjectStore) -> float:
    """Return the time of the store's clock, by which its files are dated."""
    key = f"{SWEEPING}clock-{uuid.uuid4().hex}"
    objects.put_small(key, b"[]")
    try:
        return max(file.modified for file in objects.list_files(key))
    finally:
        objects.delete(key)


def _documents(
    objects: ObjectStore, rule: KeepRule
) -> tuple[dict[str, tuple[StoredFile, BundleManifest]], set[str]]:
    """Return the documents of releases and candidates, and blobs that unreadable ones may name."""
    found: dict[str, tuple[StoredFile, BundleManifest]] = {}
    unreadable: set[str] = set()
    released, proposed = (objects.list_files(k.folder) for k in (release_key, candidate_key))
    for file in [*released, *proposed]:
        candidate = candidate_key.build(file.key) is not None
        if release_key.build(file.key) is None and not candidate:
            continue
        try:
            content = objects.read_small(file.key, MAX_MANIFEST_BYTES)
        except NotInStore:  # removed by another sweep, or promoted
            continue
        except TooLarge:  # foreign or planted: it names no usable blobs
            _log.warning("left out: %s/%s is no document", objects.url, file.key)
            continue
        try:
            found[file.key] = file, parse_manifest(content, f"{objects.url}/{file.key}")
        except ArtifactError as error:
            if not rule.pass_damaged and not candidate:  # anybody may propose anything
                advice = "Remove or repair it, or have `collect-garbage` pass it: nothing was swept"
                raise ArtifactError(error.place, error.fact, advice) from error
            _log.warning("kept, and what it may name: %s", error)
            unreadable |= {blob_key(name.decode()) for name in _DIGEST.findall(content)}
    return found, unreadable


def _superseded(
    documents: dict[str, tuple[StoredFile, BundleManifest]],
    rule: KeepRule,
    old: float,
    in_use: set[str],
) -> list[str]:
    """Return the documents of old builds, but never of the latest one."""
    by_platform: dict[tuple[str, str], dict[str, list[str]]] = {}
    for key, (_, manifest) in documents.items():
        if (names := release_key.build(key)) is None:  # a candidate is not superseded
            continue
        model, _, build_key = names
        builds = by_platform.setdefault((model, manifest.platform), {})
        builds.setdefault(build_key, []).append(key)

    def rank(keys: list[str]) -> tuple[bool, bool, float]:
        manifests = [documents[key][1] for key in keys]
        latest = PurePosixPath(keys[0]).name.partition(".")[0] in in_use
        validated = any(m.state is ReleaseState.VALIDATED for m in manifests)
        return latest, validated, max(moment(m.created).timestamp() for m in manifests)

    going = []
    for builds in by_platform.values():
        stay = max(builds.values(), key=rank)
        newest = sorted(builds.values(), key=lambda keys: rank(keys)[::2], reverse=True)
        for keys in newest[rule.releases :]:
            if keys != stay and all(documents[key][0].modified <= old for key in keys):
                going += keys
    return sorted(going)


def _older(
    objects: ObjectStore,
    prefixes: Iterable[str],
    date: float,
    chosen: Callable[[str], object] = is_note_key,
) -> list[str]:
    return [
        file.key
        for prefix in prefixes
        for file in objects.list_files(prefix)
        if file.modified <= date and chosen(file.key)
    ]


def _removed(
    objects: ObjectStore,
    keys: list[str],
    needed_now: Callable[[], set[str]] = set,
    *,
    dry_run: bool = False,
) -> list[str]:
    """Remove files that are still unused, in batches, and return their keys."""
    removed = []
    for start in range(0, len(keys), _BATCH):
        names = {key: PurePosixPath(key).stem for key in keys[start : start + _BATCH]}
        notes = nullcontext(noted(objects)) if dry_run else sweeping(objects, names.values())
        with notes as wanted:
            needed = needed_now()
            going = [k for k, name in names.items() if name not in wanted and k not in needed]
            for key in () if dry_run else going:
                objects.delete(key)
        removed += going
    return removed


def _in_use(objects: ObjectStore) -> set[str]:
    """Return the ledgers' latest builds; signatures are unchecked, since builds are only kept."""
    found = set()
    for key in objects.list_keys(ledger_key.folder):
        with suppress(NotInStore, TooLarge, Malformed, ValueError, KeyError, TypeError):
            content = load(objects.read_small(key, MAX_LEDGER_BYTES))
            latest = from_json(Ledger, base64.b64decode(content["payload"])).latest
            found |= set() if latest is None else {latest.build_key}
    return found


def _beside(key: str) -> tuple[str, ...]:
    """Return the keys of the files beside a release's document: signatures and provenance."""
    place = key.partition("/")[2]
    signature = f"signatures/{place}"
    return signature, f"{signature.removesuffix('.json')}.sig", f"provenance/{place}"


def _submitted(objects: ObjectStore, going: set[str]) -> set[str]:
    """Return the keys of the blobs that readable submissions need."""
    needed: set[str] = set()
    for digest in listed(objects):
        if submission_key(digest) not in going:
            try:
                files = read_submission(objects, digest).files.values()
            except StoreUnreachable:
                raise
            except MenagerieError as error:
                _log.warning("left out: %s", error)
                continue
            needed |= {blob_key(entry.sha256) for entry in files}
    return needed


def _digests(manifests: Iterable[BundleManifest]) -> set[str]:
    return {blob_key(entry.sha256) for m in manifests for entry in m.listed.values()}
