"""Which models of which libraries convert: runs what the table lacks, then writes the table.

    python -m benchmarks.sweep                         # what is missing, for the CPU
    python -m benchmarks.sweep 'vit*' --target metal   # some, for Metal
    python -m benchmarks.sweep --again                 # also those that were not proven

Each case has a process of its own with a limit of time and memory. Results are kept after each, so
that a run that was ended goes on where it was.
"""

from __future__ import annotations

import argparse
import fnmatch
import time

from benchmarks.sweep.attempt import Bounds, run
from benchmarks.sweep.catalogue import catalogue
from benchmarks.sweep.record import Results
from benchmarks.sweep.table import write_table


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.sweep",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="*", help="names or patterns; default: all")
    parser.add_argument("--target", action="append", help="default: cpu; may be repeated")
    parser.add_argument("--again", action="store_true", help="also what was not proven")
    parser.add_argument("--anew", action="store_true", help="also what was proven")
    parser.add_argument("--minutes", type=float, default=10.0, help="of one case; default: 10")
    parser.add_argument("--gigabytes", type=float, default=8.0, help="of one process; default: 8")
    parser.add_argument("--only-table", action="store_true", help="write the table, run nothing")
    return parser.parse_args()


def main() -> None:
    """Run and write."""
    wish = _arguments()
    cases, results = catalogue(), Results()
    bounds = Bounds(wish.minutes * 60, wish.gigabytes)
    patterns = wish.models or ["*"]
    chosen = [name for p in patterns for name in cases if fnmatch.fnmatch(name.lower(), p.lower())]
    for target in [] if wish.only_table else wish.target or ["cpu"]:
        for name in dict.fromkeys(chosen):
            before = results.records.get(target, {}).get(name)
            if before and not wish.anew and (before.state == "proven" or not wish.again):
                continue
            record = run(name, target, bounds)
            results.add(target, name, record)
            write_table(cases, results)
            clock = time.strftime("%H:%M:%S")
            print(f"{clock} {target} {name}: {record.state}, {record.seconds:.0f} s", flush=True)
            if record.text:
                print(f"    {record.text.splitlines()[0][:160]}", flush=True)
    write_table(cases, results)


if __name__ == "__main__":
    main()
