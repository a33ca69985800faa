"""Prefect task: compile every program and write the bundle, sealed as `lowered`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefect import task
from prefect.cache_policies import NO_CACHE

if TYPE_CHECKING:
    from tasks.bench import Bench
    from tasks.job import LowerRecord

__all__ = ["lower"]


@task(persist_result=False, cache_policy=NO_CACHE)
def lower(bench: Bench) -> LowerRecord:
    """See `Bench.lower`."""
    return bench.lower()
