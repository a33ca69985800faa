"""The results of the suites, and their table."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tests.suites.attempt import COUNTED, Outcome, State

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
_REASON = 240  # characters of a reason; the whole is in results.json
_HEAD = """# PyTorch's own tables through the front door

Written by `make suites` (`python -m tests.suites --help`) from [results.json](results.json), which
has the reasons in full; do not edit. A case is an operator of `op_db` with float32, int64 or bool
inputs, or a module of `module_db`, with up to six of the inputs that PyTorch tests it with; it is
*proven* if all of them are, through `convert()`. Metal is emulated. Not counted is what no program
of fixed sizes can be: random numbers, sizes that depend on values, complex inputs or results, no
tensor, and what `torch.export` refuses.
"""


class Results:
    """What came of every case by target; written after each, so that a run resumes."""

    def __init__(self, path: Path = RESULTS) -> None:
        self._path = path
        held = json.loads(path.read_text()) if path.exists() else {}
        self.outcomes: dict[str, dict[str, Outcome]] = {
            target: {
                name: Outcome(
                    State(fields["state"]), fields.get("error", ""), fields.get("text", "")
                )
                for name, fields in rows.items()
            }
            for target, rows in held.items()
        }

    def of(self, target: str, name: str) -> Outcome | None:
        """What came of a case, if it was tried."""
        return self.outcomes.get(target, {}).get(name)

    def add(self, target: str, name: str, outcome: Outcome) -> None:
        """Keep an outcome, in the place of an older one."""
        self.outcomes.setdefault(target, {})[name] = outcome
        made = {
            target: {n: {k: v for k, v in asdict(rows[n]).items() if v} for n in sorted(rows)}
            for target, rows in sorted(self.outcomes.items())
        }
        fresh = self._path.with_suffix(".partial")
        fresh.write_text(json.dumps(made, indent=1) + "\n")
        fresh.replace(self._path)


def share(results: Results, target: str, suite: str) -> tuple[int, int]:
    """Proven and counted cases of a suite."""
    rows = results.outcomes.get(target, {})
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
    for target, rows in results.outcomes.items():
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
            why = " ".join(outcome.text.split())[:_REASON].replace("|", "\\|").replace("<", "&lt;")
            yield f"| {name} | {outcome.state} | {outcome.error}: {why} |"


def write_table(results: Results) -> None:
    """Write TABLE.md."""
    TABLE.write_text(table(results))
