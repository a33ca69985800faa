"""Timing of two bundles in turns without torch: `alternating.py FIRST SECOND THREADS ROUNDS`.

As a script it prints one line for each number of rows that follows (the size of every dynamic axis,
with random inputs), or for golden case 0 if none does: milliseconds of each bundle, and the
speed-up of the second. Both run in one process.
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

_TURN_MS = 30.0  # least duration of a turn, which repeats short runs


class Timing(NamedTuple):
    """Medians over all rounds: milliseconds per run, and the ratio of each round."""

    before_ms: float  # of the first bundle
    after_ms: float
    speedup: float  # before / after


def alternate(
    first: Path, second: Path, *, threads: int, rounds: int, rows: Sequence[int] = ()
) -> list[Timing]:
    """Time two bundles in a fresh process; return a timing per number of rows, or one in total."""
    arguments = [first, second, threads, rounds, *rows]
    command = [sys.executable, __file__, *map(str, arguments)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return [Timing(*row) for row in json.loads(answer.stdout)]


def _main() -> None:
    from menagerie.session import Session

    folders = sys.argv[1:3]
    threads, rounds, *rows = map(int, sys.argv[3:])
    # The benchmarks have just made these bundles, without signatures.
    sessions = [Session(folder, threads=threads, allow_unsigned=True) for folder in folders]
    feeds = [_random(sessions[0], count) for count in rows] or [_golden(Path(folders[0]))]
    # For one thread, processor time excludes other programs' work.
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
    """Raise an error for wrong results, because a fast wrong result is no gain."""
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
