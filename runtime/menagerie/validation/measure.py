"""How long calls take."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from menagerie.validation.records import Measurement

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["latency", "measurement"]

_MOST_RUNS = 1000
_FEWEST_RUNS = 3
_LEAST_PROCESSOR_MS = 100.0  # some systems count processor time in ticks of milliseconds


def latency(
    run: Callable[[], object], *, seconds: float, threads: int, case: int | None = None
) -> Measurement:
    """Times a call again and again, after one unmeasured call.

    Args:
        run: the call.
        seconds: how long to go on measuring; at least 3 and at most 1000 calls are made.
        threads: how many threads the call uses; noted only.
        case: the golden case whose inputs are used; noted only.
    """
    run()
    times: list[float] = []
    begun = time.process_time()
    end = time.perf_counter() + seconds
    while len(times) < _FEWEST_RUNS or (len(times) < _MOST_RUNS and time.perf_counter() < end):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return measurement(times, (time.process_time() - begun) * 1e3, threads=threads, case=case)


def measurement(
    wall_ms: Sequence[float], processor_ms: float, *, threads: int, case: int | None
) -> Measurement:
    """What calls took: each by the wall's clock, and all together by the processor's."""
    runs = len(wall_ms)
    return Measurement(
        minimum_ms=min(wall_ms),
        median_ms=float(np.median(wall_ms)),
        p90_ms=float(np.percentile(wall_ms, 90)),
        runs=runs,
        threads=threads,
        case=case,
        processor_ms=processor_ms / runs if processor_ms >= _LEAST_PROCESSOR_MS else None,
    )
