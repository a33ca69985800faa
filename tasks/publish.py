"""Publication of a validated bundle to the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefect import task
from prefect.cache_policies import NO_CACHE

from menagerie.format.paths import MANIFEST
from tasks.job import Job, PublishRecord
from tasks.retries import RETRY_SECONDS, worth_a_retry
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["publish", "publish_bundle"]


def publish_bundle(job: Job) -> PublishRecord:
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


@task(
    persist_result=False,
    cache_policy=NO_CACHE,
    retries=len(RETRY_SECONDS),
    retry_delay_seconds=RETRY_SECONDS,
    retry_condition_fn=worth_a_retry,
)
def publish(publish_bundle: Callable[[Job], PublishRecord], job: Job) -> PublishRecord:
    """See `publish_bundle`."""
    return publish_bundle(job)
