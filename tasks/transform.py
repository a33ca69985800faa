"""Prefect task: the graph passes over every program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefect import task
from prefect.cache_policies import NO_CACHE

if TYPE_CHECKING:
    from tasks.bench import Bench
    from tasks.job import TransformRecord

__all__ = ["transform"]


@task(persist_result=False, cache_policy=NO_CACHE)
def transform(bench: Bench) -> TransformRecord:
    """See `Bench.transform`."""
    return bench.transform()
