"""Two bundles in turns, in one process without torch: `alternating.py FIRST SECOND THREADS ROUNDS`.

Run as a script it prints a row for each number of rows that follows (the size of every dynamic
axis, inputs random), or one for golden case 0 where none does: milliseconds of each bundle, and
how many times faster the second is.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from menagerie.format.folder import open_bundle
from menagerie.validation.goldens import GoldenCases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from menagerie.session import Session

_TURN_MS = 30.0  # a turn repeats short runs for at least this long


class Timing(NamedTuple):
    """Medians over all rounds: milliseconds a run, and of the ratios round by round."""

    before_ms: float  # of the first
    after_ms: float
    speedup: float  # before / after


def alternate(
    first: Path, second: Path, *, threads: int, rounds: int, rows: Sequence[int] = ()
) -> list[Timing]:
    """Time two bundles in a fresh process; one timing a number of rows, or one in all."""
    arguments = [first, second, threads, rounds, *rows]
    command = [sys.executable, __file__, *map(str, arguments)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return [Timing(*row) for row in json.loads(answer.stdout)]


def _main() -> None:
    from menagerie.session import Session

    folders = sys.argv[1:3]
    threads, rounds, *rows = map(int, sys.argv[3:])
    # The benchmarks have just made them, and sign nothing.
    sessions = [Session(folder, threads=threads, allow_unsigned=True) for folder in folders]
    feeds = [_random(sessions[0], count) for count in rows] or [_golden(Path(folders[0]))]
    # One thread's processor time leaves out what other programs on the machine take.
    clock = time.process_time if threads == 1 else time.perf_counter
    timings = []
    for feed in feeds:

        def run(session: Session, repeat: int, feed: dict[str, np.ndarray] = feed) -> float:
            started = clock()
            for _ in range(repeat):
                session.run(feed)
            return (clock() - started) * 1e3 / repeat

        _assert_equal(*(session.run(feed) for session in sessions))
        repeat = max(1, round(_TURN_MS / max(run(sessions[0], 1), 1e-3)))
        pairs = [(run(sessions[0], repeat), run(sessions[1], repeat)) for _ in range(rounds)]
        timings.append(
            Timing(
                statistics.median(p[0] for p in pairs),
                statistics.median(p[1] for p in pairs),
                statistics.median(p[0] / p[1] for p in pairs),
            )
        )
    print(json.dumps(timings))


def _assert_equal(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> None:
    """Refuse wrong results: a fast one is no gain."""
    for name, value in before.items():
        if value.dtype.kind == "f":
            error = np.abs(after[name] - value).max(initial=0.0)
            assert error <= 1e-3 * np.abs(value).max(initial=0.0), f"{name} is off by {error}"


def _random(session: Session, rows: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {
        i.name: generator.standard_normal(
            [s if isinstance(s, int) else rows for s in i.shape]
        ).astype(np.float32)
        for i in session.inputs
    }


def _golden(bundle: Path) -> dict[str, np.ndarray]:
    opened = open_bundle(bundle)
    program = opened.manifest.programs[0]
    return GoldenCases(opened.file(program.golden.path), program).inputs(0)


if __name__ == "__main__":
    _main()
