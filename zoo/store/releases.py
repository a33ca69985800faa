"""Publication of releases in any ObjectStore."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath

from menagerie.format.bundle_manifest import SIGNATURE, BundleManifest, ReleaseState, moment
from menagerie.format.folder import open_bundle
from menagerie.store.layout import (
    BLOBS,
    MAX_VERDICT_BYTES,
    Build,
    archive_key,
    blob_key,
    candidate_key,
    ledger_key,
    page_key,
    release_key,
    signature_key,
    verdict_key,
)
from menagerie.store.releases import Release, ReleaseReader
from menagerie.trust.ledger import Ledger
from zoo.base_models import Frozen
from zoo.errors import ArtifactError, NotInStore, StoreError, TooLarge
from zoo.store.base import LINK_SECONDS, ObjectStore
from zoo.store.coordination import announce, publishing
from zoo.store.garbage_collection import LINKED_DAYS

_log = logging.getLogger(__name__)
_AT_A_TIME = 16
_DOCUMENTS = (release_key, candidate_key)


class Store(ReleaseReader):
    """Releases in a folder or a bucket; `open_store` makes one.

    The release's document is written after all its files, so every listed release is complete, even
    if a publisher was killed.
    """

    def __init__(self, objects: ObjectStore, *, allow_unsigned: bool | None = None) -> None:
        super().__init__(objects, allow_unsigned=allow_unsigned)
        self.objects = objects  # the store's files

    def propose(self, bundle: Path, vouched: Callable[[Release], bool] = lambda _: True) -> Release:
        """Make a sealed and proven bundle a candidate; send only the files that the store lacks.

        If the same build was published before, return the earlier candidate or release, provided
        that `vouched` accepts it: equal keys mean equal content, and readers may be using it. But a
        validated bundle is proposed beside an emulated release. Raise ArtifactError if the bundle
        breaks the format, StoreError if the store could not take it; the store's releases are then
        as complete as before.
        """
        opened = open_bundle(bundle)
        opened.require_whole()
        release = Release(opened.manifest, opened.document)
        if release.manifest.state is ReleaseState.LOWERED:
            raise StoreError(str(bundle), "is lowered but not proven", "Validate it, then publish")
        earlier = self._whole(release.names)
        if earlier is not None and vouched(earlier) and not _confirms(release, earlier):
            return earlier
        with publishing(self.objects, bundle, release.manifest.listed):
            self.objects.put_small(candidate_key(*release.names), release.document)
        return release

    def admit(
        self,
        candidate: Release,
        signature: bytes | None,
        vouched: Callable[[Release], bool] = lambda _: True,
    ) -> Release:
        """Make a candidate a release, with its signature, and return the release in the store.

        An earlier release of the same build stays, and `sign` writes its signature; but a validated
        release is placed beside an emulated one and precedes it. Raise StoreError if the store
        could not take it, or a sweep has removed its files.
        """
        earlier = self._readable(*candidate.names)
        if earlier is not None and not vouched(earlier):  # written by somebody without permission
            for confirmed in (False, True):
                self.objects.delete(release_key(*candidate.names, confirmed=confirmed))
            earlier = None
        if earlier is None or _confirms(candidate, earlier):
            names, confirmed = candidate.names, earlier is not None
            with announce(self.objects, (e.sha256 for e in candidate.manifest.listed.values())):
                if lacking := self._lacking(candidate):
                    place = f"{self.url}/{candidate_key(*names)}"
                    fact = f"{len(lacking)} of its files are gone, {lacking[0]} is the first"
                    advice = "Convert it again: a sweep has taken the candidate"
                    raise StoreError(place, fact, advice)
                if signature is not None:
                    self.objects.put_small(signature_key(*names, confirmed=confirmed), signature)
                key = release_key(*names, confirmed=confirmed)
                self.objects.put_small(key, candidate.document)
            earlier = replace(candidate, confirmed=confirmed)
        elif earlier.document == candidate.document and signature is not None:
            self.sign(earlier, signature)
        self.objects.delete(candidate_key(*candidate.names))
        return earlier

    @contextmanager
    def hold(self, candidate: Release) -> Iterator[None]:
        """Keep a candidate and its files from sweeps while the block judges it.

        Raise NotInStore if a sweep was first, StoreError if one does not end.
        """
        digests = [entry.sha256 for entry in candidate.manifest.listed.values()]
        with announce(self.objects, [candidate.build_key, *digests]):
            self.find_any(*candidate.names)
            yield

    def sign(self, release: Release, signature: bytes, name: str = SIGNATURE) -> None:
        """Put a signature beside a release's document, in place of an earlier one.

        `name` is the signature's name in the release's folder.
        """
        self.objects.put_if_new(self._beside(release, name), signature)

    def candidates(self, model: str | None = None, target: str | None = None) -> list[Release]:
        """Return the builds that wait for promotion, sorted by model, target and time."""
        found = [
            candidate
            for key in self.objects.list_keys(candidate_key.under(model))
            if (names := candidate_key.build(key)) is not None
            and target in {None, names[1]}
            and (candidate := self.candidate(*names)) is not None
        ]
        return sorted(found, key=lambda c: (c.model, c.target, moment(c.manifest.created)))

    def candidate(self, model: str, target: str, build_key: str) -> Release | None:
        """Return a build that waits for promotion; None if it is missing or unreadable."""
        try:
            return self._document(model, target, build_key, kind=candidate_key)
        except (NotInStore, ArtifactError, TooLarge):  # anybody may propose anything
            return None

    def ledgers(self, model: str | None = None) -> list[Ledger]:
        """Return the signed ledgers of a model, or of all models, sorted by model and platform.

        Raise Untrusted if no trusted key has signed one of them, ArtifactError if one is
        damaged.
        """
        paths = map(PurePosixPath, self.objects.list_keys(ledger_key.under(model)))
        found = (self.ledger(path.parent.name, path.stem) for path in paths)
        return [ledger for ledger in found if ledger is not None]

    def history(self, model: str) -> list[tuple[Release, bool | None]]:
        """Return releases and whether each one was retracted; None without a trusted ledger."""
        found = self.releases(model)
        gone = {each: self.retractions(model, each) for each in {r.platform for r in found}}
        return [(r, None if (b := gone[r.platform]) is None else r.build_key in b) for r in found]

    def retractions(self, model: str, platform: str) -> dict[str, str] | None:
        """Return when and why builds were retracted, by key; None without a trusted ledger."""
        try:
            ledger = self.ledger(model, platform)
        except ArtifactError:
            return None
        last = {} if ledger is None else {e.build_key: e for e in ledger.entries}
        return {k: f"{e.when}: {e.reason}" for k, e in last.items() if e.action == "retract"}

    def find_any(self, model: str, target: str, build_key: str) -> Release:
        """Return a release, or else a candidate, signed or not, so that it can be judged or shown.

        Raise NotInStore if there is none, ArtifactError if its document is damaged.
        """
        try:
            return self._read(model, target, build_key)
        except NotInStore:
            if (candidate := self.candidate(model, target, build_key)) is None:
                raise
            return candidate

    def named(self, ledger: Ledger) -> Iterator[Release]:
        """Yield a ledger's releases that no sweep removed, ordered by their first promotion."""
        for build in dict.fromkeys(entry.build_key for entry in ledger.entries):
            with suppress(NotInStore):
                release = self.find_any(ledger.model, ledger.target, build)
                if ledger.names(build, release.digest):  # otherwise it was written later
                    yield release

    def held(self, builds: Sequence[Build]) -> dict[Build, BundleManifest]:
        """Return the manifests of builds and candidates whose files exist with the right sizes.

        For many builds, listings replace a request for each build and its files.
        """
        sizes = None
        if len(builds) > _AT_A_TIME:
            there = {k.build(key) for k in _DOCUMENTS for key in self.objects.list_keys(k.folder)}
            builds = [build for build in builds if build in there]
            sizes = {file.key: file.bytes for file in self.objects.list_files(BLOBS)}
        with ThreadPoolExecutor(_AT_A_TIME) as pool:  # a request may cross an ocean
            found = pool.map(lambda build: self._whole(build, sizes), builds)
            pairs = zip(builds, found, strict=True)
            return {build: whole.manifest for build, whole in pairs if whole is not None}

    def note(self, verdict: ReleaseVerdict) -> None:
        """Store the verdict of a release's verification."""
        key = verdict_key(verdict.model, verdict.target, verdict.build_key)
        self.objects.put_small(key, (verdict.model_dump_json(indent=1) + "\n").encode())

    def verdict(self, release: Release) -> ReleaseVerdict | None:
        """Return the verdict of a release's last verification, if there was one."""
        key = verdict_key(*release.names)
        return self.objects.read_record(key, MAX_VERDICT_BYTES, ReleaseVerdict)

    def link(self, release: Release, file: str) -> str | None:
        """Return an address of a file of the release, valid for a week; None for a local folder."""
        name = f"{release.model}-{release.target}-{PurePosixPath(file).name}"
        return self.objects.link(blob_key(release.manifest.listed[file].sha256), name)

    def link_page(self, page: bytes, name: str) -> str | None:
        """Store an HTML page for three weeks, for a report outside any release; see `link`."""
        key = page_key(hashlib.sha256(page).hexdigest())
        self.objects.put_small(key, page)
        return self.objects.link(key, f"{name}.html")

    def put_archive(self, release: Release, archive: Path) -> None:
        """Store a release as one zip file for three weeks, for `link_archive`."""
        self.objects.put_file(archive, archive_key(release.digest), lambda _: None)

    def link_archive(self, release: Release) -> str | None:
        """Return the address of the release's zip file, if it exists and stays for another week."""
        key = archive_key(release.digest)
        lasts = time.time() + LINK_SECONDS - LINKED_DAYS * 86400
        if not any(
            file.key == key and file.modified > lasts for file in self.objects.list_files(key)
        ):
            return None
        return self.objects.link(key, f"{release.model}-{release.target}.zip")

    def _whole(self, build: Build, sizes: Mapping[str, int] | None = None) -> Release | None:
        """Return the release or candidate if its document is sound and its files are complete.

        A validated candidate takes precedence over an emulated release.
        """
        release, candidate = self._readable(*build), self.candidate(*build)
        if candidate is not None and (release is None or _confirms(candidate, release)):
            release = candidate
        if release is None:
            return None
        return None if self._lacking(release, sizes) else release

    def _lacking(self, release: Release, sizes: Mapping[str, int] | None = None) -> list[str]:
        """Return the files of a release that are missing or have another size."""
        size_of = self.objects.size_of if sizes is None else sizes.get
        return [
            name
            for name, entry in release.manifest.listed.items()
            if size_of(blob_key(entry.sha256)) != entry.bytes
        ]


def _confirms(release: Release, earlier: Release) -> bool:
    """Return whether `release` is a build validated on a device and `earlier` only emulated it."""
    states = release.manifest.state, earlier.manifest.state
    return states == (ReleaseState.VALIDATED, ReleaseState.EMULATED)


class ReleaseVerdict(Frozen):
    """The result of a verification."""

    model: str
    target: str
    build_key: str
    passed: bool
    detail: str  # empty when passed
    machine: str = ""
    runtime: str = ""
    when: str  # ISO 8601, UTC
