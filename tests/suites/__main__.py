"""PyTorch's own tables of modules and operators through `convert()`: runs what the table lacks.

    python -m tests.suites                             # what is missing, for the CPU
    python -m tests.suites 'op_db/conv*' --target metal
    python -m tests.suites --fraction 0.25 --seed 1    # a part, the same at every run
    python -m tests.suites --again                     # also what was not proven whole
    python -m tests.suites --fraction 0.02 --memory address  # watched; results are printed alone
    python -m tests.suites --only-table

Cases of one dtype share programs, and what an error names is converted alone. Results are kept
after each group of cases, so that a run that was ended goes on where it was.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING

from tests.suites.attempt import Outcome, State, attempt
from tests.suites.cases import SAMPLES, cases
from tests.suites.memory import Memory, watch
from tests.suites.table import Results, write_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SAMPLES_TOGETHER = 128
_DOUBTFUL_TOGETHER = 12  # of cases that were not proven before


def main() -> None:
    """Run and write."""
    arguments = _arguments()
    if arguments.memory:
        scratch = Path(sys.prefix) / f"suites-{os.getpid()}"  # which the proof's sandbox can read
        scratch.mkdir(mode=0o700, exist_ok=True)  # the same one once memory is watched
        try:
            watch(arguments.memory, scratch)
            _run(arguments, Results(scratch / "results.json"))
        finally:
            shutil.rmtree(scratch)
        return
    results = Results()
    results.cases = len(cases())
    if not arguments.only_table:
        _run(arguments, results)
    write_table(results)


def _run(arguments: argparse.Namespace, results: Results) -> None:
    chosen = part_of(
        [n for n in cases() if any(fnmatch.fnmatch(n, p) for p in arguments.cases or ["*"])],
        arguments.fraction,
        arguments.seed,
    )
    wanted = arguments.target or ["cpu"]
    lacking = {
        name: tuple(t for t in wanted if _lacks(results.of(t, name), again=arguments.again))
        for name in chosen
    }
    groups = list(_groups({n: t for n, t in lacking.items() if t}, results))
    left = sum(len(names) * len(targets) for names, targets in groups)
    print(f"{left} cases in {len(groups)} groups, by {arguments.jobs} jobs", flush=True)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        pending = [pool.submit(lambda group: list(attempt(*group)), group) for group in groups]
        try:
            for ended in as_completed(pending):
                outcomes = ended.result()
                results.add(outcomes)
                left -= len(outcomes)
                _print(outcomes, left)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise


def part_of(names: Sequence[str], fraction: float, seed: int) -> list[str]:
    """Some of the names, chosen by their hashes: the same ones at every run, more by a fraction."""

    def place(name: str) -> float:
        return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8]) / 2**64

    return [name for name in names if place(name) < fraction]


def _groups(
    lacking: dict[str, tuple[str, ...]], results: Results
) -> Iterator[tuple[list[str], tuple[str, ...]]]:
    """Cases that share programs: of one dtype, those that were not proven before by themselves."""
    alike: dict[tuple[object, ...], list[str]] = {}
    for name, targets in lacking.items():
        before = [o for t in ("cpu", "metal") if (o := results.of(t, name))]
        doubtful = any(o.state not in {State.PROVEN, State.NOT_COUNTED} for o in before)
        alike.setdefault((targets, cases()[name].dtype, doubtful), []).append(name)
    for (targets, dtype, doubtful), names in alike.items():
        most = _DOUBTFUL_TOGETHER if doubtful else _SAMPLES_TOGETHER
        size = max(1, most // SAMPLES[dtype])  # type: ignore[index]
        for start in range(0, len(names), size):
            yield names[start : start + size], targets  # type: ignore[misc]


def _lacks(before: Outcome | None, *, again: bool) -> bool:
    """Whether a case is to be run: one that was not proven whole only `again`."""
    return before is None or (again and before.state not in {State.PROVEN, State.NOT_COUNTED})


def _print(outcomes: Sequence[tuple[str, str, Outcome]], left: int) -> None:
    clock = time.strftime("%H:%M:%S")
    for target, name, outcome in outcomes:
        if outcome.state is State.NOT_COUNTED:
            continue
        said = f"{outcome.state}, {outcome.proven} of {outcome.of}"
        said += f", dynamic {outcome.dynamic}" * bool(outcome.dynamic)
        said += f", other values {outcome.same} of {outcome.sets}" * bool(outcome.sets)
        print(f"{clock} {target} {name}: {said}", flush=True)
        for text in (outcome.text, outcome.dynamic_text, outcome.values_text):
            if text:
                print(f"    {text[:200]}", flush=True)
    print(f"{clock} {left} left", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m tests.suites",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cases", nargs="*", help="names or patterns; default: all")
    parser.add_argument("--target", action="append", help="default: cpu; may be repeated")
    parser.add_argument("--again", action="store_true", help="also what was not proven whole")
    parser.add_argument("--fraction", type=float, default=1.0, help="of the cases; default: 1")
    parser.add_argument("--seed", type=int, default=0, help="which part of them; default: 0")
    parser.add_argument("--memory", type=Memory, choices=list(Memory), help="how it is watched")
    jobs = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parser.add_argument("--jobs", type=int, default=jobs, help="default: one for each processor")
    parser.add_argument("--only-table", action="store_true", help="write the table, run nothing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
