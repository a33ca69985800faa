"""Prefect task: fetch or make the weights and build the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.retries import RETRY_SECONDS, worth_a_retry

if TYPE_CHECKING:
    from tasks.bench import Bench
    from tasks.job import PullRecord

__all__ = ["pull"]


@task(
    persist_result=False,
    cache_policy=NO_CACHE,
    retries=len(RETRY_SECONDS),
    retry_delay_seconds=RETRY_SECONDS,
    retry_condition_fn=worth_a_retry,
)
def pull(bench: Bench) -> PullRecord:
    """See `Bench.pull`."""
    return bench.pull()
