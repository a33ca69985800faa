"""Which models of which libraries convert: runs what the table lacks, then writes the table.

    python -m tests.sweep                         # what is missing, for the CPU
    python -m tests.sweep 'vit*' --target metal   # some, for Metal
    python -m tests.sweep --again                 # also those that were not proven
    python -m tests.sweep --jobs 4                # as many at a time

Each case has a process of its own with a limit of time and memory. Results are kept after each, so
that a run that was ended goes on where it was.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

from tests.sweep.apart import Bounds
from tests.sweep.attempt import run
from tests.sweep.catalogue import catalogue
from tests.sweep.record import Record, Results
from tests.sweep.table import write_table


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m tests.sweep",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="*", help="names or patterns; default: all")
    parser.add_argument("--target", action="append", help="default: cpu; may be repeated")
    parser.add_argument("--again", action="store_true", help="also what was not proven")
    parser.add_argument("--anew", action="store_true", help="also what was proven")
    parser.add_argument("--minutes", type=float, default=10.0, help="of one case; default: 10")
    parser.add_argument("--gigabytes", type=float, default=8.0, help="of one process; default: 8")
    parser.add_argument(
        "--jobs",
        type=int,
        default=max(1, (os.cpu_count() or 1) // 2),
        help="cases at a time; default: half of the processors, as each compiles with two",
    )
    parser.add_argument("--only-table", action="store_true", help="write the table, run nothing")
    return parser.parse_args()


def main() -> None:
    """Run and write."""
    options = _arguments()
    cases, results = catalogue(), Results()
    bounds = Bounds(options.minutes * 60, options.gigabytes)
    patterns = options.models or ["*"]
    chosen = [name for p in patterns for name in cases if fnmatch.fnmatch(name.lower(), p.lower())]
    lacking = [
        (target, name)
        for target in ([] if options.only_table else options.target or ["cpu"])
        for name in dict.fromkeys(chosen)
        if _lacks(results.of(target, name), again=options.again, anew=options.anew)
    ]
    with ThreadPoolExecutor(options.jobs) as pool:
        running = {
            pool.submit(run, name, target, bounds): (target, name) for target, name in lacking
        }
        for ended, done in enumerate(as_completed(running), 1):
            target, name = running[done]
            record = done.result()
            results.add(target, name, record)
            write_table(cases, results)
            clock = time.strftime("%H:%M:%S")
            of = f"{ended}/{len(lacking)}"
            print(
                f"{clock} {of} {target} {name}: {record.state}, {record.seconds:.0f} s", flush=True
            )
            if record.text:
                print(f"    {record.text.splitlines()[0][:160]}", flush=True)
    write_table(cases, results)


def _lacks(before: Record | None, *, again: bool, anew: bool) -> bool:
    """Whether a case is to be run: what was proven only `anew`, what was not only `again`."""
    return before is None or anew or (again and before.state != "proven")


if __name__ == "__main__":
    main()
