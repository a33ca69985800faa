"""The results of the suites, and their table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.suites.attempt import COUNTED, Outcome, State
from tests.sweep.record import Kept
from tests.sweep.table import cells

if TYPE_CHECKING:
    from collections.abc import Iterator

RESULTS = Path(__file__).with_name("results.json")
TABLE = Path(__file__).with_name("TABLE.md")
GOALS = {
    ("cpu", "module_db"): 99,
    ("cpu", "op_db"): 97,
    ("metal", "module_db"): 97,
    ("metal", "op_db"): 92,
}
_HEAD = """# PyTorch's own tables through the front door

Written by `make suites` (`python -m tests.suites --help`) from [results.json](results.json), which
has the reasons in full; do not edit. A case is an operator of `op_db` with float32, int64 or bool
inputs, or a module of `module_db`, with up to six of the inputs that PyTorch tests it with; it is
*proven* if all of them are, through `convert()`. Metal is emulated. Not counted is what no program
of fixed sizes can be: random numbers, memory that nothing has written, sizes that depend on values,
complex inputs or results, no tensor, and what eager or `torch.export` refuses.
"""


class Results(Kept[Outcome]):
    """The suites'."""

    def __init__(self, path: Path = RESULTS) -> None:
        super().__init__(path, Outcome.read)


def share(results: Results, target: str, suite: str) -> tuple[int, int]:
    """Proven and counted cases of a suite."""
    rows = results.records.get(target, {})
    states = [o.state for n, o in rows.items() if n.startswith(f"{suite}/")]
    return states.count(State.PROVEN), sum(state in COUNTED for state in states)


def table(results: Results) -> str:
    """The table as Markdown: shares, states, and the reason of every case that is not proven."""
    lines = [
        _HEAD,
        "| target | suite | proven | of | share | goal |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for (target, suite), goal in GOALS.items():
        proven, counted = share(results, target, suite)
        if counted:
            lines.append(
                f"| {target} | {suite} | {proven} | {counted} | {100 * proven / counted:.1f} % "
                f"| {goal} % |"
            )
    for target, rows in results.records.items():
        counts = Counter(outcome.state for outcome in rows.values())
        said = ", ".join(f"{counts[state]} {state}" for state in State if counts[state])
        lines += [
            "",
            f"## {target}",
            "",
            f"{said}.",
            "",
            "| case | result | why |",
            "|---|---|---|",
        ]
        lines += _rows(rows)
    return "\n".join(lines) + "\n"


def _rows(rows: dict[str, Outcome]) -> Iterator[str]:
    for name, outcome in rows.items():
        if outcome.state in COUNTED and outcome.state is not State.PROVEN:
            yield cells([name, outcome.state, f"{outcome.error}: {outcome.text}"])


def write_table(results: Results) -> None:
    """Write TABLE.md."""
    TABLE.write_text(table(results))
