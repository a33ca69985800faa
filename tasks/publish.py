"""Publication of a proven bundle to the store."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from menagerie.format.archive import pack
from menagerie.format.paths import MANIFEST
from tasks.job import PublishRecord
from zoo.errors import MenagerieError
from zoo.store import open_store

if TYPE_CHECKING:
    from tasks.job import Job, StageRecords
    from zoo.store import Release, Store

__all__ = ["publish_bundle"]

_log = logging.getLogger(__name__)

_MOST_ARCHIVED = 2 * 2**30  # bytes; what is larger is got file by file, or by `zoo pull`


def publish_bundle(job: Job, _: StageRecords | None = None) -> PublishRecord:
    """Put the job's bundle into its store, which keeps an earlier release of the same build.

    In a bucket it lies for some weeks as one zip file too, for the link on the run's page.

    Raises:
        StoreError: if the store cannot take it; it then lists only what was complete before.
    """
    store = open_store(job.store)
    release = store.publish(job.bundle)
    ours = (job.bundle / MANIFEST).read_bytes()
    if release.document == ours:
        _archive(store, release, job)
    return PublishRecord(
        store=job.store,
        bytes=release.size,
        kept=None if release.document == ours else release.manifest.created,
        state=release.manifest.state,
    )


def _archive(store: Store, release: Release, job: Job) -> None:
    """Where it fails, a warning: the release is in the store."""
    if not job.store.startswith("s3://") or release.size > _MOST_ARCHIVED:
        return
    archive = job.folder / "bundle.zip"
    try:
        store.put_archive(release, pack(job.bundle, archive))
    except MenagerieError as error:
        _log.warning("%s for %s is not there as a zip file: %s", job.model, job.target, error)
    finally:
        archive.unlink(missing_ok=True)
