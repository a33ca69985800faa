"""Publication of a proven bundle to the store: as a candidate, and signed where that may be."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from menagerie.format.archive import pack
from menagerie.format.bundle_manifest import MANIFEST, SIGNATURE
from tasks.job import PublishRecord
from zoo.errors import MenagerieError
from zoo.signing import Promoter, check_candidate, keyring_for
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Collection

    from tasks.job import Job, StageRecords
    from zoo.store import Release, Store

_log = logging.getLogger(__name__)

_MOST_ARCHIVED = 2 * 2**30  # bytes; what is larger is got file by file, or by `zoo pull`


def publish_bundle(job: Job, _: StageRecords | None = None) -> PublishRecord:
    """Put the job's bundle into its store, which keeps an earlier release of the same build.

    It is a candidate there. Where this process may sign for the store, as for a local one, it is
    promoted at once: its goldens were made here.
    In a bucket a release is there as one zip file too, for some weeks, linked on the run's page.

    Raises:
        StoreError: if the store cannot take it; it then lists only what was complete before.
        ValidationError: it is not what the entry asks for.
    """
    store = open_store(job.store)
    if (keyring := keyring_for(job.store)) is None:
        release = store.propose(job.bundle)
    else:  # what others put there under this build key is not ours to sign
        promoter = Promoter(store, keyring, draws=job.draws)
        release = store.propose(job.bundle, vouched=promoter.vouches)
        check_candidate(release.manifest, job.spec)
        release = promoter.promote(release)
    ours = (job.bundle / MANIFEST).read_bytes()
    if keyring is not None and release.document == ours:
        _archive(store, release, job)
    return PublishRecord(
        store=job.store,
        bytes=release.size,
        kept=None if release.document == ours else release.manifest.created,
        state=release.manifest.state,
        promoted=keyring is not None,
    )


def draw_catalogue(store: str, models: Collection[str]) -> None:
    """Draw what models promoted here by jobs that did not draw it themselves look like.

    The list of all is drawn once for all of them: with every promotion it would take a time that
    grows with the number of models. Nothing to do where this process may not sign for the store.
    """
    keyring = keyring_for(store) if models else None
    if keyring is not None:
        Promoter(open_store(store), keyring).draw(models)


def _archive(store: Store, release: Release, job: Job) -> None:
    """With its signature, or nothing would take it. Where it fails, a warning: it is released."""
    if not job.store.startswith("s3://") or release.size > _MOST_ARCHIVED:
        return
    archive = job.folder / "bundle.zip"
    try:
        (job.bundle / SIGNATURE).write_bytes(store.signature(release) or b"")
        store.put_archive(release, pack(job.bundle, archive))
    except MenagerieError as error:
        _log.warning("%s for %s is not there as a zip file: %s", job.model, job.target, error)
    finally:
        archive.unlink(missing_ok=True)
