"""Sealing a bundle once its own code has run: nothing but its report may have changed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from menagerie.format.bundle_manifest import MANIFEST
from menagerie.format.folder import seal
from zoo.errors import ArtifactError

if TYPE_CHECKING:
    from pathlib import Path

    from menagerie.format.bundle_manifest import BundleManifest, ReleaseState

__all__ = ["reseal", "without_report"]

_REPORT = {"report.json", "report.html", "graphs.json"}


def reseal(folder: Path, draft: BundleManifest, state: ReleaseState) -> BundleManifest:
    """Seal a proven bundle, with its report, in the state that was proven.

    Args:
        folder: the bundle. The library in it ran as a process of this user, which can write here.
        draft: what was sealed, as read before that run.
        state: of the release to be.

    Returns:
        The manifest as it is sealed now.

    Raises:
        ArtifactError: a file is not the one that was sealed; the folder is then no bundle any more.
    """
    sealed = seal(folder, replace(without_report(draft), state=state))
    before, after = without_report(draft).listed, without_report(sealed).listed
    changed = sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))
    if changed:
        (folder / MANIFEST).unlink()
        raise ArtifactError(
            str(folder / changed[0]),
            "changed while the bundle was run",
            "Do not trust this artifact or what it was made from",
        )
    return sealed


def without_report(manifest: BundleManifest) -> BundleManifest:
    """The manifest as if nobody had written what the proof came to."""
    kept = {role: entry for role, entry in manifest.files.items() if entry.path not in _REPORT}
    return replace(manifest, files=kept)
