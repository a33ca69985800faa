"""Prefect task: torch.export of every program, and its golden cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefect import task
from prefect.cache_policies import NO_CACHE

if TYPE_CHECKING:
    from tasks.bench import Bench
    from tasks.job import ExportRecord

__all__ = ["export"]


@task(persist_result=False, cache_policy=NO_CACHE)
def export(bench: Bench) -> ExportRecord:
    """See `Bench.export`."""
    return bench.export()
