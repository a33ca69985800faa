"""Publication of a proven bundle to the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from menagerie.format.paths import MANIFEST
from tasks.job import PublishRecord
from zoo.store import open_store

if TYPE_CHECKING:
    from tasks.job import Evidence, Job

__all__ = ["publish_bundle"]


def publish_bundle(job: Job, _: Evidence | None = None) -> PublishRecord:
    """Put the job's bundle into its store, which keeps an earlier release of the same build.

    Raises:
        StoreError: if the store cannot take it; it then lists only what was complete before.
    """
    release = open_store(job.store).publish(job.bundle)
    ours = (job.bundle / MANIFEST).read_bytes()
    return PublishRecord(
        store=job.store,
        bytes=release.size,
        kept=None if release.document == ours else release.manifest.created,
        state=release.manifest.state,
    )
