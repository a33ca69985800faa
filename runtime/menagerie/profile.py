"""Times of a program's kernels, next to the peaks of the machine."""

from __future__ import annotations

import ctypes
import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from menagerie.errors import SessionError
from menagerie.figures import count, milliseconds, percent
from menagerie.host import cores
from menagerie.library import last_error, library
from menagerie.terminal import columns
from menagerie.typed_json import plain
from menagerie.validation.findings import KernelTime, Measurement, Peaks, Profile

if TYPE_CHECKING:
    from menagerie.session import Session

_FEWEST_RUNS = 3
_SHIM = ("aoti_torch_cpu_", "aoti_torch_", "mkldnn_", "_")
_MOST_RUNS = 1000
_TURN_SECONDS = 0.04  # longer than the other side's threads spin, and short
_LEAST_PROCESSOR_MS = 100.0  # some systems count processor time in ticks of milliseconds


def machine_peaks(threads: int) -> Peaks:
    """Measure this machine's peaks in tenths of a second; raise SessionError if memory is short."""
    flops, moved = ctypes.c_double(), ctypes.c_double()
    answer = library("cpu").menagerie_machine_peaks(
        threads, ctypes.byref(flops), ctypes.byref(moved)
    )
    if answer:
        raise SessionError("this machine", f"its peaks cannot be measured: {last_error()}")
    return Peaks(flops=flops.value, bytes=moved.value)


def profile(
    session: Session, run: Callable[[], object], *, threads: int, seconds: float
) -> Profile:
    """Time each kernel of a CPU session in at least three runs, after one that is not counted.

    Raise SessionError if the session is for a GPU, or a run fails.
    """
    run()
    session.set_profiling(on=True)
    try:
        turn = take_turn(run, seconds, fewest=_FEWEST_RUNS)
        kernels = session.kernel_times()
    finally:
        session.set_profiling(on=False)
    runs, peaks = len(turn.wall_ms), machine_peaks(threads)
    took = sum(turn.wall_ms) / runs
    return Profile(threads=threads, runs=runs, milliseconds=took, peaks=peaks, kernels=kernels)


def with_shares(found: Profile) -> dict[str, object]:
    """Return the profile for JSON, with each kernel's shares of the time and the roofline."""
    kernels = [
        plain(each) | {"share": found.share(each), "of_roofline": found.of_roofline(each)}
        for each in found.kernels
    ]
    return {**plain(found), "kernels": kernels}


def short_name(kernel: KernelTime) -> str:
    """Return a kernel's name without the common prefix."""
    name = kernel.kernel
    for start in _SHIM:
        name = name.removeprefix(start)
    return name


class KernelRow(NamedTuple):
    """A kernel's figures as text: its time per run, and its speed."""

    milliseconds: str
    share: str
    calls: str
    gflops: str  # per second; of products, convolutions and attention only
    gigabytes: str  # per second
    of_roofline: str
    name: str


_HEAD = KernelRow("ms a run", "share", "calls", "GFLOP/s", "GB/s", "of roofline", "kernel")


def kernel_rows(found: Profile, most: int) -> list[KernelRow]:
    """Return rows for the longest kernels, all other kernels, and the time outside them."""
    rows = []
    for each in found.kernels[:most]:
        seconds = max(each.milliseconds, 1e-6) / 1e3
        rows.append(
            KernelRow(
                milliseconds=f"{each.milliseconds / found.runs:.3f}",
                share=percent(found.share(each)),
                calls=str(each.calls // found.runs),
                gflops=f"{each.flops / seconds / 1e9:.1f}" if each.flops else "",
                gigabytes=f"{each.bytes / seconds / 1e9:.1f}" if each.bytes else "",
                of_roofline=f"{found.of_roofline(each):.2f}",
                name=short_name(each),
            )
        )
    others = sum(each.milliseconds for each in found.kernels[most:]) / found.runs
    if others:
        rows.append(_rest(found, others, f"{count(len(found.kernels) - most, 'kernel')} more"))
    all_kernels = sum(each.milliseconds for each in found.kernels) / found.runs
    rows.append(_rest(found, found.milliseconds - all_kernels, "between kernels"))
    return rows


def table(program: str, found: Profile, most: int = 25) -> str:
    """Format the profile as columns for a terminal."""
    peaks = f"{found.peaks.flops / 1e9:.0f} GFLOP/s and {found.peaks.bytes / 1e9:.1f} GB/s"
    runs = f"{count(found.runs, 'run')} on {count(found.threads, 'thread')}"
    head = f"{program}: {milliseconds(found.milliseconds)} a run, {runs}; this machine does {peaks}"
    return f"{head}\n{columns(_HEAD, kernel_rows(found, most), _HEAD[:-1])}"


def _rest(found: Profile, took_ms: float, what: str) -> KernelRow:
    return KernelRow(f"{took_ms:.3f}", percent(took_ms / found.milliseconds), "", "", "", "", what)


@dataclass(frozen=True)
class Turn:
    """The calls of one turn: the milliseconds of each, and their total processor time."""

    wall_ms: tuple[float, ...]
    processor_ms: float


def take_turn(
    run: Callable[[], object],
    seconds: float = _TURN_SECONDS,
    *,
    fewest: int = 1,
    most: float = math.inf,
) -> Turn:
    """Call `run` until `seconds` have passed, from `fewest` to `most` times."""
    walls: list[float] = []
    begun, end = time.process_time(), time.perf_counter() + seconds
    while len(walls) < fewest or (len(walls) < most and time.perf_counter() < end):
        start = time.perf_counter()
        run()
        walls.append((time.perf_counter() - start) * 1e3)
    return Turn(tuple(walls), (time.process_time() - begun) * 1e3)


def latency(
    run: Callable[[], object], *, seconds: float, threads: int, case: int | None = None
) -> Measurement:
    """Time a call repeatedly, at least 3 and at most 1000 times, after one unmeasured call.

    Threads and golden case are only recorded.
    """
    run()
    turn = take_turn(run, seconds, fewest=_FEWEST_RUNS, most=_MOST_RUNS)
    return measurement([turn], threads=threads, case=case)


def measurement(turns: Sequence[Turn], *, threads: int, case: int | None) -> Measurement:
    """Return statistics of each call's wall time, and the mean processor time."""
    import numpy as np  # not needed for a page of measured kernels

    wall_ms = [wall for turn in turns for wall in turn.wall_ms]
    processor_ms = sum(turn.processor_ms for turn in turns)
    runs = len(wall_ms)
    return Measurement(
        minimum_ms=min(wall_ms),
        median_ms=float(np.median(wall_ms)),
        p90_ms=float(np.percentile(wall_ms, 90)),
        runs=runs,
        threads=threads,
        case=case,
        processor_ms=processor_ms / runs if processor_ms >= _LEAST_PROCESSOR_MS else None,
        load=_load(),
    )


def _load() -> float | None:
    with suppress(OSError):  # unavailable in a sandbox
        return os.getloadavg()[0] / cores()
    return None
