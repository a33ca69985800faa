"""A published bundle, as whoever found it holds it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from menagerie.figures import size

if TYPE_CHECKING:
    from pathlib import Path

    from menagerie.format.bundle_manifest import BundleManifest

__all__ = ["Build", "Release"]

Build = tuple[str, str, str]  # model, target, build key


@dataclass(frozen=True)
class Release:
    """A published bundle.

    Attributes:
        manifest: the bundle's manifest.
        document: the same, byte for byte as it was sealed.
        confirmed: whether it stands where a device confirmed an emulated one.
    """

    manifest: BundleManifest
    document: bytes
    confirmed: bool = field(default=False, compare=False)

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
    def digest(self) -> str:
        """sha256 of the manifest's document, hexadecimal: which names all the files' too."""
        return hashlib.sha256(self.document).hexdigest()

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return self.manifest.size

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
