"""PyTorch's own tables of modules and operators through `convert()`: runs what the table lacks.

    python -m tests.suites                             # what is missing, for the CPU
    python -m tests.suites 'op_db/conv*' --target metal
    python -m tests.suites --again                     # also what was not proven
    python -m tests.suites --only-table

Cases share programs, and are converted alone where a shared one fails. Results are kept after each
program, so that a run that was ended goes on where it was.
"""

from __future__ import annotations

import argparse
import fnmatch
import time
from typing import TYPE_CHECKING

from tests.suites.attempt import COUNTED, Outcome, State, sort_out, try_together
from tests.suites.cases import cases
from tests.suites.table import Results, write_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SORTED_AT_ONCE = 60


def main() -> None:
    """Run and write."""
    arguments = _arguments()
    results = Results()
    patterns = arguments.cases or ["*"]
    chosen = [name for name in cases() if any(fnmatch.fnmatch(name, p) for p in patterns)]
    for target in [] if arguments.only_table else arguments.target or ["cpu"]:
        missing = [n for n in chosen if _lacks(results.of(target, n), again=arguments.again)]
        for ended, (name, outcome) in enumerate(
            _run(missing, target, results, arguments.together), 1
        ):
            results.add(target, name, outcome)
            clock, of = time.strftime("%H:%M:%S"), f"{ended}/{len(missing)}"
            print(f"{clock} {of} {target} {name}: {outcome.state}", flush=True)
            if outcome.state in COUNTED and outcome.text:
                print(f"    {outcome.text.splitlines()[0][:160]}", flush=True)
    write_table(results)


def _run(
    names: list[str], target: str, results: Results, together: int
) -> Iterator[tuple[str, Outcome]]:
    """Sort out what is not counted, then convert: what was not proven before, alone."""
    for some in _parts(names, _SORTED_AT_ONCE):
        able = []
        for name, outcome in sort_out(some):
            if outcome is None:
                able.append(name)
            else:
                yield name, outcome
        before = {name: results.of(target, name) or results.of("cpu", name) for name in able}
        doubtful = [n for n, o in before.items() if o and o.state is not State.PROVEN]
        for name in doubtful:
            yield from try_together([name], target)
        for group in _parts([n for n in able if n not in doubtful], together):
            yield from try_together(group, target)


def _parts(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), size):
        yield names[start : start + size]


def _lacks(before: Outcome | None, *, again: bool) -> bool:
    """Whether a case is to be run: what was counted and not proven only `again`."""
    return before is None or (again and before.state in COUNTED - {State.PROVEN})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m tests.suites",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cases", nargs="*", help="names or patterns; default: all")
    parser.add_argument("--target", action="append", help="default: cpu; may be repeated")
    parser.add_argument("--again", action="store_true", help="also what was not proven")
    parser.add_argument("--together", type=int, default=8, help="cases of a program; default: 8")
    parser.add_argument("--only-table", action="store_true", help="write the table, run nothing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
