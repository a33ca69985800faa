"""The table of the sweep, and the sentence of it that the README has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tests.sweep.case import Case
    from tests.sweep.record import Record, Results

README = Path(__file__).parents[2] / "README.md"
TABLE = Path(__file__).with_name("TABLE.md")
_MARK = "<!-- written by `make sweep` -->"
_TEXT = 240  # characters of a reason; the whole is in results.json
_HEAD = """# Which models convert

Written by `make sweep` (`python -m tests.sweep --help`) from [results.json](results.json),
which has the reasons in full; do not edit. One small configuration each, random weights, small
inputs. *Proven*: converted, and within tolerance of eager PyTorch in a fresh process without torch,
on the inputs and at the lowest, highest and odd sizes of whatever varies; decibels are the signal
to noise of the worst output. Metal is emulated.
"""


def sentence(results: Results) -> str:
    """What the README says: counts of what was tried, exported and proven."""
    parts = []
    for target, word in (("cpu", "proven on the CPU"), ("metal", "emulated on Metal")):
        rows = results.records.get(target, {})
        able = [r for r in rows.values() if _counts(r)]
        proven = [r for r in able if r.state == "proven"]
        if able:
            share = f"{len(proven)} of {len(able)} ({100 * len(proven) // len(able)} %)"
            parts.append(f"{share} that torch.export exports are {word}")
    tried = {name for rows in results.records.values() for name in rows}
    said = "; ".join(parts) or "nothing was tried yet"
    return (
        f"Of the {len(tried)} architectures that the sweep has tried so far, {said}; its "
        f"[table](tests/sweep/TABLE.md) names the others."
    )


def _counts(record: Record) -> bool:
    """Whether the goal counts it: torch.export exports it, or that is unknown."""
    return record.exported is not False and record.state != "does not run"


def table(cases: Mapping[str, Case], results: Results) -> str:
    """The table as Markdown, a part for each family."""
    families: dict[tuple[str, str], list[str]] = {}
    for name, case in cases.items():
        families.setdefault((case.library, case.family), []).append(name)
    parts = [_HEAD, sentence(results).replace("[table](tests/sweep/TABLE.md)", "table"), ""]
    for (library, family), names in families.items():
        rows = [line for name in names for line in _rows(name, results)]
        left = sum(all(name not in rows for rows in results.records.values()) for name in names)
        parts += [f"## {library}: {family}", ""]
        if rows:
            parts += ["| model | target | exported | result | sizes that vary | why not |"]
            parts += ["|---|---|---|---|---|---|", *rows, ""]
        if left:
            parts += [f"{left} not tried yet.", ""]
    return "\n".join(parts)


def _rows(name: str, results: Results) -> Iterator[str]:
    for target, rows in results.records.items():
        if name in rows:
            yield _row(name, target, rows[name])


def _row(name: str, target: str, record: Record) -> str:
    exported = {True: "yes", False: "no", None: "?"}[record.exported]
    result = record.state
    if record.state == "proven":
        result = "proven" if record.snr_db is None else f"proven, {record.snr_db:.0f} dB"
    why = record.narrowed or record.text
    if record.missing:
        why = "no kernel: " + ", ".join(record.missing)
    elif record.error and not record.narrowed:
        why = f"{record.error}: {why}"
    return cells([name, target, exported, result, ", ".join(record.dynamic) or "none", why])


def cells(texts: Iterable[str]) -> str:
    """A row of a table in Markdown; long texts are cut."""
    plain = (
        " ".join(cell.split())[:_TEXT].replace("|", "\\|").replace("<", "&lt;") for cell in texts
    )
    return f"| {' | '.join(plain)} |"


def with_sentence(text: str, said: str) -> str:
    """A text with the sentence in the line after the mark.

    Raises:
        ValueError: the text has no mark.
    """
    before, mark, after = text.partition(f"{_MARK}\n")
    if not mark:
        raise ValueError(f"{_MARK} is missing")
    _, _, rest = after.partition("\n")
    return f"{before}{mark}{said}\n{rest}"


def write_table(cases: Mapping[str, Case], results: Results) -> None:
    """Write TABLE.md and the README's sentence."""
    TABLE.write_text(table(cases, results))
    README.write_text(with_sentence(README.read_text(), sentence(results)))
