"""Published releases, found and pulled through any ObjectReader."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path

from menagerie.errors import (
    ArtifactError,
    HashMismatch,
    NotInStore,
    Retracted,
    TooLarge,
    UnknownName,
    Untrusted,
    UsageError,
)
from menagerie.figures import size
from menagerie.format.bundle_manifest import (
    MAX_MANIFEST_BYTES,
    MODEL_SIGNATURE,
    SIGNATURE,
    BundleManifest,
    FileEntry,
    ReleaseState,
    moment,
    parse_manifest,
)
from menagerie.host import runnable_platforms
from menagerie.store.base import FolderReader, Meter, ObjectReader, Progress, silent
from menagerie.store.latest import trusted_ledger
from menagerie.store.layout import (
    Build,
    Keys,
    blob_key,
    ledger_key,
    model_signature_key,
    release_key,
    signature_key,
)
from menagerie.store.pull import BlobCache, pull_bundle
from menagerie.trust import allows_unsigned, check_signature
from menagerie.trust.ledger import Ledger
from menagerie.trust.signature import MAX_SIGNATURE_BYTES

_log = logging.getLogger(__name__)
_KEY_DIGITS = 64
# The most bytes of each; 2**20 suffice for some thousand files.
SIGNATURES = {SIGNATURE: MAX_SIGNATURE_BYTES, MODEL_SIGNATURE: 2**20}
_SLACK = timedelta(days=1)  # for differing clocks


@dataclass(frozen=True)
class Release:
    """A published bundle."""

    manifest: BundleManifest
    document: bytes  # the manifest, byte for byte as sealed
    confirmed: bool = field(default=False, compare=False)  # by a device, after an emulated proof

    @property
    def model(self) -> str:
        """The model's name, from the manifest."""
        return self.manifest.model

    @property
    def target(self) -> str:
        """The target's name."""
        return self.manifest.target

    @property
    def platform(self) -> str:
        """The platform that it runs on, e.g. `cpu-linux-x86_64`."""
        return self.manifest.platform

    @property
    def build_key(self) -> str:
        """The identity of its sources, 64 hexadecimal digits."""
        return self.manifest.build_key

    @property
    def names(self) -> Build:
        """Model, target and build key."""
        return self.model, self.target, self.build_key

    @property
    def digest(self) -> str:
        """The hexadecimal sha256 of the manifest's document, which has the digests of all files."""
        return hashlib.sha256(self.document).hexdigest()

    @property
    def size(self) -> int:
        """The bytes of all its files."""
        return self.manifest.size

    def pulled_to(self, place: Path) -> tuple[str, dict[str, str | int | None]]:
        """Describe a finished pull: a line for people, and fields for programs."""
        seed = self.manifest.random_weights
        weights = "" if seed is None else f", random weights (seed {seed})"
        facts: dict[str, str | int | None] = {
            "model": self.model,
            "target": self.target,
            "platform": self.platform,
            "build_key": self.build_key,
            "path": str(place.resolve()),
            "bytes": self.size,
            "random_weights": seed,
        }
        return f"{place}: {self.model} for {self.platform}, {size(self.size)}{weights}", facts


class ReleaseReader:
    """The readable releases of a store; `menagerie.store.open_releases` creates one."""

    def __init__(self, objects: ObjectReader, *, allow_unsigned: bool | None = None) -> None:
        self._reader = objects
        self._allow_unsigned = allow_unsigned

    @property
    def url(self) -> str:
        """The store's address."""
        return self._reader.url

    def releases(self, model: str | None = None, target: str | None = None) -> list[Release]:
        """Return all releases, or those of a model or target, by model, target and time."""
        found = [
            release
            for names in self._listed(model)
            if target in (None, names[1]) and (release := self._readable(*names)) is not None
        ]
        return sorted(found, key=lambda r: (r.model, r.target, moment(r.manifest.created)))

    def find(
        self, model: str, target: str, build_key: str | None = None, *, platform: str | None = None
    ) -> Release:
        """Return the release of this build, or without `build_key` the latest one for a platform.

        `build_key` is that of a release for any platform, or a unique prefix of it. `platform`
        defaults to this machine's own, else to one that is emulated here. The signed ledger names
        the latest release; if unsigned ones are allowed and there is no ledger, the releases
        themselves do, if they can be listed.

        Raises:
            NotInStore: there is no such release.
            Untrusted: no trusted key has signed the release.
            Retracted: its publisher says that it must no longer be used.
            ArtifactError: its document is damaged.
            TooLarge: its document is larger than one may be.
            UsageError: several build keys have this prefix.
        """
        if build_key is not None:
            release = self._read(model, target, self._whole_key(model, target, build_key, platform))
            self._require_current(release)
            return release
        wanted = (platform,) if platform else runnable_platforms(target)
        for each in wanted:
            if (found := self._latest(model, target, each)) is not None:
                return found
        raise self._nothing(model, target, wanted)

    def ledger(self, model: str, platform: str) -> Ledger | None:
        """Return the signed history of a model's releases for a platform, if there is one.

        Raise Untrusted if no trusted key has signed it or it is older than one seen here before,
        ArtifactError if it is damaged.
        """
        return trusted_ledger(self._reader, model, platform)

    def pull(
        self,
        release: Release,
        folder: Path,
        progress: Progress = silent,
        *,
        cache: BlobCache | None = None,
        goldens: bool = True,
    ) -> Path:
        """Download a release into `folder`, which then is a complete bundle, or unchanged.

        Without `goldens`, it lacks the files that only a proof reads.

        `folder` must be absent or empty, and not the current folder, or hold the same release. An
        interrupted pull is resumed. Every file's sha256 is verified before the folder
        appears under its name. `progress` is called with the bytes done and the total;
        `cache` has files that earlier pulls have downloaded.

        Raises:
            Untrusted: no trusted key has signed the release; nothing was downloaded.
            UsageError: `folder` holds something else, or is the current folder.
            HashMismatch: the store's bytes are not the published ones.
            StoreFull: there is no space for the files.
            StoreError: the store did not deliver the files.
        """
        beside = self.signatures(release)
        if not self._unsigned_too:
            check_signature(release.document, beside.get(SIGNATURE), self._place(release))
        kept = None if isinstance(self._reader, FolderReader) else cache  # a second copy is useless
        made = release.manifest
        wanted = {n: e for n, e in made.listed.items() if goldens or n not in made.of_proofs}
        return pull_bundle(
            self._reader, made, release.document, folder, beside=beside, wanted=wanted,
            meter=Meter(sum(e.bytes for e in wanted.values()), progress), cache=kept,
        )  # fmt: skip

    def signatures(self, release: Release) -> dict[str, bytes]:
        """Return unverified signatures, ours and other tools', by their names in the folder."""
        found = {
            name: self._reader.read_if_there(self._beside(release, name), most)
            for name, most in SIGNATURES.items()
        }
        return {name: content for name, content in found.items() if content is not None}

    def _beside(self, release: Release, name: str) -> str:
        """Return the key of a signature that is put into a bundle under this name."""
        kind = signature_key if name == SIGNATURE else model_signature_key
        return kind(*release.names, confirmed=release.confirmed)

    def read_file(self, entry: FileEntry, most: int = MAX_MANIFEST_BYTES) -> bytes:
        """Read a release's file; raise TooLarge beyond `most` bytes, HashMismatch if it changed."""
        key = blob_key(entry.sha256)
        content = self._reader.read_small(key, min(entry.bytes, most))
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            fact = "the store's bytes are not the ones that were published"
            raise HashMismatch(f"{self.url}/{key}", fact, "Tell its owner")
        return content

    def _whole_key(self, model: str, target: str, beginning: str, platform: str | None) -> str:
        """Return the only build key with this prefix, or the prefix itself if there is none."""
        if len(beginning) == _KEY_DIGITS:
            return beginning
        known = {build for _, t, build in self._listed(model) if t == target}
        if self._reader.list_keys(ledger_key.folder) is None:  # a web server
            platforms = (platform,) if platform else runnable_platforms(target)
            ledgers = [self.ledger(model, each) for each in platforms]
            known = {entry.build_key for each in ledgers if each for entry in each.entries}
        found = [key for key in known if key.startswith(beginning)]
        if len(found) > 1:
            fact = f"{beginning!r} begins {len(found)} of its build keys"
            raise UsageError(model, fact, "Give more of its digits")
        return found[0] if found else beginning

    def _latest(self, model: str, target: str, platform: str) -> Release | None:
        """Return the ledger's latest release, or the best if unsigned ones are allowed."""
        ledger, unsigned_too = self._believed(model, platform), self._unsigned_too
        if ledger is not None and ledger.target == target:
            if (entry := ledger.latest) is None:
                return None
            for read in (self._read, self._document):  # confirmed since then, or not
                with suppress(NotInStore):
                    found = read(model, target, entry.build_key)
                    if found.digest == entry.document:
                        return found
            if not unsigned_too:
                fact = f"release {entry.build_key} is not the one that was promoted"
                raise Untrusted(f"{self.url}/{model}", fact, "Tell its owner")
        listed = (each for each in self.releases(model, target) if each.platform == platform)
        release = max(listed, key=_rank, default=None)
        if release is not None and not unsigned_too:  # there is one, but not promoted
            self._require_current(release)
        return release

    def _require_current(self, release: Release) -> None:
        """Raise an error unless a trusted ledger names the release and does not retract it."""
        ledger = self._believed(release.model, release.platform)
        entry = None if ledger is None else ledger.retraction(release.build_key)
        if entry is not None:
            fact = f"was retracted on {entry.when}: {entry.reason or 'no reason is given'}"
            raise Retracted(self._place(release), fact, "Use a later release")
        named = ledger is not None and ledger.names(release.build_key, release.digest)
        if not named and not self._unsigned_too:
            check_signature(release.document, None, self._place(release))

    @property
    def _unsigned_too(self) -> bool:
        return allows_unsigned(self._allow_unsigned)

    def _believed(self, model: str, platform: str) -> Ledger | None:
        """Return a trusted ledger; None if it is untrusted and unsigned releases are allowed."""
        try:
            return self.ledger(model, platform)
        except ArtifactError:
            if not self._unsigned_too:
                raise
            return None

    def _place(self, release: Release) -> str:
        return f"{self.url}/{release_key(*release.names)}"

    def _listed(self, model: str | None = None) -> list[Build]:
        builds = map(release_key.build, self._reader.list_keys(release_key.under(model)) or ())
        return list(dict.fromkeys(names for names in builds if names is not None))

    def _readable(self, *build: str, confirmed: bool = False) -> Release | None:
        """Return the release; None if it is absent or this version of Menagerie cannot read it."""
        try:
            return self._document(*build, confirmed=True) if confirmed else self._read(*build)
        except NotInStore:
            return None
        except (ArtifactError, TooLarge) as error:
            _log.warning("left out: %s", error)
            return None

    def _read(self, *build: str) -> Release:
        """Return the release as published, or as a device has confirmed it since."""
        release = self._document(*build)
        if release.manifest.state is not ReleaseState.EMULATED:
            return release
        return self._readable(*build, confirmed=True) or release

    def _document(self, *build: str, kind: Keys = release_key, confirmed: bool = False) -> Release:
        (model, target, build_key), key = build, kind(*build, confirmed=confirmed)
        place = f"{self.url}/{key}"
        try:
            document = self._reader.read_small(key, MAX_MANIFEST_BYTES)
        except NotInStore:
            fact = f"no release {build_key} of {model} for {target}"
            raise UnknownName(self.url, fact, f"See `zoo release list {model}`") from None
        manifest = parse_manifest(document, place)
        if (manifest.model, manifest.target, manifest.build_key) != build:
            raise ArtifactError(place, "is the document of another release", "Remove it")
        return Release(manifest, document, confirmed)

    def _nothing(self, model: str, target: str, wanted: Sequence[str]) -> NotInStore:
        self._reader.require()
        there = sorted({r.platform for r in self.releases(model, target)})
        left = {each: self._left(model, target, each) for each in dict.fromkeys([*wanted, *there])}
        for platform in wanted:
            if keys := [k[:12] for k in left[platform] or () if self._readable(model, target, k)]:
                fact = f"{model} has no latest release for {platform}"
                again = f"zoo release rollback {model} --target {target} --to KEY"
                advice = f"Give --build KEY ({', '.join(keys)}), or make one the latest: `{again}`"
                return NotInStore(self.url, fact, advice)
        retracted = [each for each, keys in left.items() if keys == []]
        gone = f"all releases of {model} for {' and '.join(retracted)} were retracted"
        if elsewhere := [each for each in there if each not in retracted]:
            fact = gone if retracted else f"no release of {model} for {wanted[0]}"
            advice = f"It has {', '.join(elsewhere)}: name one with --platform to get it"
            return NotInStore(self.url, fact, advice)
        if retracted:
            return NotInStore(self.url, gone, "Wait for a later one, or ask their publisher")
        kind = NotInStore if self._listed(model) else UnknownName
        return kind(self.url, f"no release of {model} for {target}", self._advice(model))

    def _left(self, model: str, target: str, platform: str) -> list[str] | None:
        """Return the usable builds if a ledger has no latest one; otherwise None."""
        with suppress(ArtifactError):  # an untrusted ledger proves nothing
            ledger = self.ledger(model, platform)
            if ledger is not None and ledger.target == target and ledger.latest is None:
                return ledger.usable
        return None

    def _advice(self, model: str) -> str:
        if self._reader.list_keys(release_key.folder) is None:
            return "Check the model's name: this store cannot be listed, nor has a ledger of it"
        listed = [(m, t) for m, t, _ in self._listed()]
        if targets := sorted({t for m, t in listed if m == model}):
            return f"It has one for {' and '.join(targets)}: name it with --target"
        others = sorted({f"{m}/{t}" for m, t in listed})
        listing = ", ".join(others[:8]) + (", ..." if len(others) > 8 else "")  # noqa: PLR2004
        return f"It has {listing}" if others else "It is empty: publish with `zoo convert`"


def _rank(release: Release) -> tuple[bool, bool, datetime, str]:
    """Return a sort key: validated releases rank above emulated ones, newer above older.

    A future date ranks last, because it would otherwise stay the latest for ever.
    """
    created = moment(release.manifest.created)
    believable = created <= datetime.now(timezone.utc) + _SLACK
    validated = release.manifest.state is ReleaseState.VALIDATED
    return validated, believable, created, release.build_key
