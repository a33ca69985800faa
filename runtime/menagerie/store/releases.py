"""Finding and pulling releases: written once, over any ObjectReader."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from menagerie.errors import ArtifactError, NotInStore, TooLarge
from menagerie.figures import size
from menagerie.format.bundle_manifest import BundleManifest, ReleaseState, moment
from menagerie.format.document import MAX_MANIFEST_BYTES, parse_manifest
from menagerie.platforms import runnable_platforms
from menagerie.store.base import Meter, ObjectReader, Progress, silent
from menagerie.store.latest import find_latest
from menagerie.store.layout import parse_release_key, release_key, releases_prefix
from menagerie.store.pull import pull_bundle

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Build", "Release", "ReleaseReader"]

_log = logging.getLogger(__name__)

Build = tuple[str, str, str]  # model, target, build key


@dataclass(frozen=True)
class Release:
    """A published bundle.

    Attributes:
        manifest: the bundle's manifest.
        document: the same, byte for byte as it was sealed.
    """

    manifest: BundleManifest
    document: bytes

    @property
    def model(self) -> str:
        """Name in the manifest."""
        return self.manifest.model

    @property
    def target(self) -> str:
        """Name of the target."""
        return self.manifest.target

    @property
    def platform(self) -> str:
        """What it runs on, e.g. `cpu-linux-x86_64`."""
        return self.manifest.platform

    @property
    def build_key(self) -> str:
        """Identity of what it was made from, 64 hexadecimal digits."""
        return self.manifest.build_key

    @property
    def names(self) -> Build:
        """Model, target and build key."""
        return self.model, self.target, self.build_key

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(entry.bytes for entry in self.manifest.listed.values())

    def pulled_to(self, place: Path) -> tuple[str, dict[str, str | int | None]]:
        """What a pull says when it is done: in a line for people, and as facts for programs."""
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
    """The releases of a store, to be read; `menagerie.store.open_releases` makes one."""

    def __init__(self, objects: ObjectReader) -> None:
        self._reader = objects

    @property
    def url(self) -> str:
        """The store's address."""
        return self._reader.url

    def releases(self, model: str | None = None, target: str | None = None) -> list[Release]:
        """All releases, or those of a model or a target, by model, target and time."""
        found = [
            release
            for names in self._listed(releases_prefix(model))
            if target in (None, names[1]) and (release := self._readable(*names)) is not None
        ]
        return sorted(found, key=lambda r: (r.model, r.target, moment(r.manifest.created)))

    def find(
        self,
        model: str,
        target: str,
        build_key: str | None = None,
        *,
        platform: str | None = None,
    ) -> Release:
        """The release of this build; without `build_key`, the latest one for a platform.

        Args:
            model: its name.
            target: its target's.
            build_key: of a certain release, whatever its platform.
            platform: of the release wanted; left out: this machine's own, else one that is emulated
                here.

        Raises:
            NotInStore: there is no such release.
            ArtifactError: there is one, but its document is damaged.
            TooLarge: there is something else in its place.
        """
        if build_key is not None:
            return self._read(model, target, build_key)
        wanted = (platform,) if platform else runnable_platforms(target)
        for each in wanted:
            latest = find_latest(self._reader, model, target, each, self._manifest)
            if latest is not None:
                return self._read(model, target, latest.build_key)
        raise self._nothing(model, target, wanted[0])

    def pull(self, release: Release, folder: Path, progress: Progress = silent) -> Path:
        """Downloads a release into `folder`, which then is a whole bundle, or as it was.

        An interrupted pull into the same folder goes on where it stopped. Every file's sha256 is
        checked before the folder appears under its name.

        Args:
            release: what `find` or `releases` gave.
            folder: absent or empty, but not the current one; or the same release, pulled before.
            progress: called with bytes done and bytes in all.

        Raises:
            UsageError: `folder` holds something else, or is the current one.
            HashMismatch: the store's bytes are not the published ones.
            StoreFull: no space for the files.
            StoreError: the store did not give them.
        """
        meter = Meter(release.size, progress)
        return pull_bundle(self._reader, release.manifest, release.document, folder, meter)

    def _listed(self, prefix: str) -> list[Build]:
        keys = map(parse_release_key, self._reader.list_keys(prefix) or ())
        return list(dict.fromkeys(names for names in keys if names is not None))

    def _manifest(self, model: str, target: str, build_key: str) -> BundleManifest | None:
        release = self._readable(model, target, build_key)
        return None if release is None else release.manifest

    def _readable(self, model: str, target: str, build_key: str) -> Release | None:
        """The release, or None when it is absent or this version of Menagerie cannot read it."""
        try:
            return self._read(model, target, build_key)
        except NotInStore:
            return None
        except (ArtifactError, TooLarge) as error:
            _log.warning("left out: %s", error)
            return None

    def _read(self, model: str, target: str, build_key: str) -> Release:
        """The release as published, or as it was confirmed on a device since."""
        release = self._document(model, target, build_key)
        if release.manifest.state is not ReleaseState.EMULATED:
            return release
        try:
            return self._document(model, target, build_key, confirmed=True)
        except NotInStore:
            return release
        except (ArtifactError, TooLarge) as error:
            _log.warning("left out: %s", error)
            return release

    def _document(
        self, model: str, target: str, build_key: str, *, confirmed: bool = False
    ) -> Release:
        key = release_key(model, target, build_key, confirmed=confirmed)
        place = f"{self.url}/{key}"
        try:
            document = self._reader.read_small(key, MAX_MANIFEST_BYTES)
        except NotInStore:
            raise NotInStore(
                self.url, f"no release {build_key} of {model} for {target}", "See `zoo list`"
            ) from None
        manifest = parse_manifest(document, place)
        if (manifest.model, manifest.target, manifest.build_key) != (model, target, build_key):
            raise ArtifactError(place, "is the document of another release", "Remove it")
        return Release(manifest, document)

    def _nothing(self, model: str, target: str, platform: str) -> NotInStore:
        if elsewhere := sorted({r.platform for r in self.releases(model, target)}):
            fact = f"no release of {model} for {platform}"
            advice = f"It has {', '.join(elsewhere)}: name one with --platform to get it"
            return NotInStore(self.url, fact, advice)
        if self._reader.list_keys(releases_prefix()) is None:
            advice = "Check the model's name: this store cannot be listed"
            return NotInStore(self.url, f"no release of {model} for {target}", advice)
        others = sorted({f"{m}/{t}" for m, t, _ in self._listed(releases_prefix())})
        listing = ", ".join(others[:8]) + (", ..." if len(others) > 8 else "")  # noqa: PLR2004
        advice = f"It has {listing}" if others else "It is empty: publish with `zoo convert`"
        return NotInStore(self.url, f"no release of {model} for {target}", advice)
