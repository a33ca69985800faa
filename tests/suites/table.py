"""The results of the suites, their table, and the sentence of it that the README has."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.suites.attempt import Outcome, State
from tests.suites.cases import SAMPLES
from tests.sweep.table import README, cells

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

RESULTS = Path(__file__).with_name("results.json")
TABLE = Path(__file__).with_name("TABLE.md")
_MARK = "<!-- written by `make suites` -->\n"
_TARGETS = {"cpu": "on the CPU", "metal": "on emulated Metal"}
_HEAD = """# PyTorch's own tables through the front door

Written by `make suites` (`python -m tests.suites --help`) from [results.json](results.json), which
has a line for each case; do not edit. A case is an operator of `op_db` with one dtype, or a module
of `module_db`; its samples are inputs that PyTorch tests it with, which differ in arguments first,
then in shapes and layouts: up to six of float32, three of int64, two of the others. Metal is
emulated.

- *whole*: cases of which `convert()` proves every sample; *samples*: proven of those counted.
- *dynamic*: of the cases whose first axis `torch.export` takes as dynamic, those that are proven
  with it from 2 to five more than the sample's.
- *other values*: proven samples run on zeros, on negative numbers alone, and with one NaN among
  floats or the ends of the type among integers; counted is each such set of inputs on which the
  artifact does what eager does: the same numbers, the same NaN and infinities, or an error where
  eager raises.

Not counted are samples that no program of fixed sizes can compute: random numbers, memory that
nothing has written, sizes that depend on values, complex inputs or results, no tensor, no finite
result, empty results alone, and those that eager or `torch.export` refuses.
"""


class Results:
    """Outcomes by target and case, in a file of one line for each case: so a run resumes.

    Attributes:
        cases: how many there are in PyTorch's tables.
        records: outcomes by target and case.
    """

    def __init__(self, path: Path = RESULTS) -> None:
        self._path = path
        held = json.loads(path.read_text()) if path.exists() else {}
        self.cases: int = held.get("cases", 0)
        self.records: dict[str, dict[str, Outcome]] = {}
        for name, rows in held.get("rows", {}).items():
            for target, fields in rows.items():
                self.records.setdefault(target, {})[name] = Outcome.read(fields)

    def of(self, target: str, name: str) -> Outcome | None:
        """The outcome of a case, if it was tried."""
        return self.records.get(target, {}).get(name)

    def add(self, outcomes: Sequence[tuple[str, str, Outcome]]) -> None:
        """Keep outcomes by target and case, in the place of older ones."""
        for target, name, outcome in outcomes:
            self.records.setdefault(target, {})[name] = outcome
        names = sorted({name for rows in self.records.values() for name in rows})
        lines = [f"{json.dumps(name)}: {json.dumps(self._row(name))}" for name in names]
        fresh = self._path.with_suffix(".partial")
        rows = ",\n".join(lines)
        fresh.write_text(f'{{"cases": {self.cases}, "rows": {{\n{rows}\n}}}}\n')
        fresh.replace(self._path)

    def _row(self, name: str) -> dict[str, Any]:
        found = {t: rows[name] for t, rows in sorted(self.records.items()) if name in rows}
        return {target: _without_defaults(outcome) for target, outcome in found.items()}


def _without_defaults(outcome: Outcome) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(outcome).items() if value}


@dataclasses.dataclass(frozen=True)
class Share:
    """Counts over some cases: each pair is a count and the number that it is of."""

    whole: tuple[int, int]
    samples: tuple[int, int]
    dynamic: tuple[int, int]
    values: tuple[int, int]


def share(outcomes: Sequence[Outcome]) -> Share:
    """Counts over the outcomes that are counted."""
    counted = [o for o in outcomes if o.state is not State.NOT_COUNTED]
    dynamic = [o.dynamic for o in counted if o.dynamic]
    return Share(
        (sum(o.state is State.PROVEN for o in counted), len(counted)),
        (sum(o.proven for o in counted), sum(o.of for o in counted)),
        (dynamic.count(State.PROVEN), len(dynamic)),
        (sum(o.same for o in counted), sum(o.sets for o in counted)),
    )


def parts(rows: Mapping[str, Outcome]) -> dict[str, list[Outcome]]:
    """The outcomes of operators by dtype, of all operators, and of modules."""
    operators = {name: outcome for name, outcome in rows.items() if name.startswith("op_db/")}
    dtypes = [str(dtype).removeprefix("torch.") for dtype in SAMPLES]
    return {
        **{d: [o for n, o in operators.items() if n.endswith(f"/{d}")] for d in dtypes},
        "all operators": list(operators.values()),
        "modules": [outcome for name, outcome in rows.items() if name not in operators],
    }


def sentence(results: Results) -> str:
    """The README's sentence: shares of operators and modules by target."""
    said = []
    for target, where in _TARGETS.items():
        rows = results.records.get(target, {})
        groups = {k: share(v) for k, v in parts(rows).items()}
        operators, modules = groups["all operators"], groups["modules"]
        drawn = f"of {len(rows):,} cases drawn from {results.cases:,}, "
        if operators.whole[1]:
            said.append(
                f"{drawn * (len(rows) < results.cases)}{_of(operators.whole)} operators by dtype "
                f"and {modules.whole[0]} of {modules.whole[1]} modules are proven {where} with "
                f"every sample tried, "
                f"{_of(operators.dynamic)} operators with a dynamic size, and "
                f"{_of(operators.values)} sets of other values give what eager gives"
            )
    return (
        f"Of PyTorch's own tables, in eight dtypes, {'; '.join(said) or 'nothing was tried yet'}. "
        f"Their [table](tests/suites/TABLE.md) has the reason for each of the others."
    )


def table(results: Results) -> str:
    """The table as Markdown: shares, and the reason of every case that is not proven whole."""
    lines = [_HEAD]
    for target, rows in sorted(results.records.items()):
        lines += [
            f"## {target}",
            "",
            f"Of all cases {_of((len(rows), results.cases))} were run.",
            "",
        ]
        lines += ["| | whole | samples | dynamic | other values |", "|---|---:|---:|---:|---:|"]
        for part, outcomes in parts(rows).items():
            if outcomes:
                counts = share(outcomes)
                pairs = (counts.whole, counts.samples, counts.dynamic, counts.values)
                lines.append(f"| {part} | {' | '.join(map(_of, pairs))} |")
        lines += ["", _not_counted(rows), ""]
        reasons = (
            ("Samples that are not proven", _unproven),
            ("Dynamic sizes that are not proven", _fixed),
            ("Other values on which the artifact differs from eager", _different),
        )
        for title, reason in reasons:
            if found := list(_merged(rows, reason)):
                lines += [f"### {title} ({target})", ""]
                lines += ["| case | dtypes | count | why |", "|---|---|---|---|", *found, ""]
    return "\n".join(lines)


def _of(pair: tuple[int, int]) -> str:
    return f"{pair[0]:,} of {pair[1]:,} ({_percent(*pair)})" if pair[1] else "none"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


def _not_counted(rows: Mapping[str, Outcome]) -> str:
    left = [o.text.partition(":")[0] for o in rows.values() if o.state is State.NOT_COUNTED]
    counts = sorted(Counter(left).items(), key=lambda pair: (-pair[1], pair[0]))
    said = ", ".join(f"{count} {reason}" for reason, count in counts)
    return f"Cases without a sample that is counted: {len(left)} ({said})." if left else ""


def _unproven(outcome: Outcome) -> tuple[str, str] | None:
    if outcome.state in {State.PROVEN, State.NOT_COUNTED}:
        return None
    return f"{outcome.proven} of {outcome.of} proven", f"{outcome.state}: {outcome.text}"


def _fixed(outcome: Outcome) -> tuple[str, str] | None:
    if outcome.dynamic in {"", State.PROVEN}:
        return None
    return outcome.dynamic, outcome.dynamic_text


def _different(outcome: Outcome) -> tuple[str, str] | None:
    if outcome.same == outcome.sets:
        return None
    return f"{outcome.same} of {outcome.sets} the same", outcome.values_text


def _merged(rows: Mapping[str, Outcome], reason: Any) -> Iterator[str]:
    """A row for each operator: what is said of its first dtype, and for which others it is."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for name, outcome in sorted(rows.items()):
        if said := reason(outcome):
            case, _, dtype = name.rpartition("/")
            found.setdefault(case, []).append((dtype, *said))
    for case, each in sorted(found.items()):
        dtypes = ", ".join(dtype for dtype, _, _ in each)
        yield cells([case, dtypes, each[0][1], each[0][2]])


def with_sentence(text: str, said: str) -> str:
    """A text with the sentence in the line after the mark.

    Raises:
        ValueError: the text has no mark.
    """
    before, mark, after = text.partition(_MARK)
    if not mark:
        raise ValueError(f"{_MARK.strip()} is missing")
    return f"{before}{mark}{said}\n{after.partition(chr(10))[2]}"


def write_table(results: Results) -> None:
    """Write TABLE.md and the README's sentence."""
    TABLE.write_text(table(results))
    README.write_text(with_sentence(README.read_text(), sentence(results)))
