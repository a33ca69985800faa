"""Publication of a proven bundle to the store: as a candidate, and signed where that may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from menagerie.format.paths import MANIFEST
from tasks.job import PublishRecord
from zoo.signing import Promoter, check_candidate, keyring_for
from zoo.store import open_store

if TYPE_CHECKING:
    from tasks.job import Evidence, Job

__all__ = ["publish_bundle"]


def publish_bundle(job: Job, _: Evidence | None = None) -> PublishRecord:
    """Put the job's bundle into its store, which keeps an earlier release of the same build.

    It is a candidate there. Where this process may sign for the store, as for a local one, it is
    promoted at once: its goldens were made here.

    Raises:
        StoreError: if the store cannot take it; it then lists only what was complete before.
        ValidationError: it is not what the entry asks for.
    """
    store = open_store(job.store)
    release = store.propose(job.bundle)
    if (keyring := keyring_for(job.store)) is not None:
        check_candidate(release.manifest, job.spec)
        release = Promoter(store, keyring).promote(release)
    ours = (job.bundle / MANIFEST).read_bytes()
    return PublishRecord(
        store=job.store,
        bytes=release.size,
        kept=None if release.document == ours else release.manifest.created,
        state=release.manifest.state,
        promoted=keyring is not None,
    )
