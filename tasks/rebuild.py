"""Making a published build again, up to its bundle, and comparing the two byte for byte."""

from __future__ import annotations

import shutil
import time
from enum import StrEnum
from typing import TYPE_CHECKING

from menagerie.format.folder import open_bundle
from tasks.stages import EXPORT, LOWER, PULL, TRANSFORM
from zoo.base_models import Frozen
from zoo.bundle_differences import Difference, differences
from zoo.errors import HashMismatch

if TYPE_CHECKING:
    from tasks.job import Job
    from tasks.stages import Hold
    from zoo.store import Release, Store


class RebuildOutcome(StrEnum):
    """What came of making a release again."""

    IDENTICAL = "identical"
    ROUNDED = "rounded"  # but for the last bits of golden outputs: another kind of processor
    DIFFERENT = "different"
    DAMAGED = "damaged"  # the store's bytes are not the published ones
    OTHER = "other"  # another code, entry, weights or version is at hand than it was made of
    UNDECIDED = "undecided"  # it could not be made again


class Rebuild(Frozen):
    """A release that was made again."""

    model: str
    target: str
    build_key: str
    outcome: RebuildOutcome
    differences: tuple[Difference, ...] = ()
    detail: str = ""
    files: int = 0  # compared
    bytes: int = 0
    seconds: float = 0.0

    @property
    def succeeded(self) -> bool:
        """Whether the release is what its entry gives."""
        return self.outcome in {RebuildOutcome.IDENTICAL, RebuildOutcome.ROUNDED}


def rebuild_release(store: Store, release: Release, job: Job, hold: Hold) -> Rebuild:
    """Pulls a release, converts its model again, and compares; `job.folder` is gone afterwards.

    Nothing is proven, measured for anybody, or published.

    Args:
        store: where it is.
        release: the build.
        job: of the same build key.
        hold: starts what holds the model.

    Raises:
        Untrusted: nobody who is trusted has signed it.
        MenagerieError: it could not be had, or not be converted.
    """
    began = time.perf_counter()
    job.folder.mkdir(parents=True)
    try:
        found = _rebuild(store, release, job, hold)
    finally:
        shutil.rmtree(job.folder, ignore_errors=True)
    return found.model_copy(update={"seconds": time.perf_counter() - began})


def _rebuild(store: Store, release: Release, job: Job, hold: Hold) -> Rebuild:
    made = Rebuild(
        model=release.model,
        target=release.target,
        build_key=release.build_key,
        outcome=RebuildOutcome.IDENTICAL,
        files=len(release.manifest.listed),
        bytes=release.size,
    )
    try:
        published = open_bundle(store.pull(release, job.folder / "published"), check_hashes=False)
    except HashMismatch as error:
        return made.model_copy(update={"outcome": RebuildOutcome.DAMAGED, "detail": str(error)})
    with hold(job) as model:
        model.run(PULL)
        model.run(EXPORT)
        model.run(TRANSFORM)
        model.run(LOWER)
    found = differences(published, open_bundle(job.bundle))
    if not found:
        return made
    detail = "; ".join(f"{each.place}: {each.fact}" for each in found)
    rounded = all(each.rounding for each in found)
    outcome = RebuildOutcome.ROUNDED if rounded else RebuildOutcome.DIFFERENT
    return made.model_copy(update={"outcome": outcome, "differences": found, "detail": detail})
