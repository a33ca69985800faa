"""Which programs a failed validation throws suspicion on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zoo.records import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zoo.records import ProgramValidation, ValidationReport

__all__ = ["Suspected", "suspected"]

Suspected = tuple[str, int | None]  # a program, and the golden case that may show the fault


def suspected(validation: ValidationReport, programs: Sequence[str]) -> tuple[Suspected, ...]:
    """What to search, the likeliest first; nothing where a search would tell nothing.

    A program whose output was out of tolerance is tried with the first such golden case. One that
    was not judged, since the runtime refused it or crashed, is tried with all its cases. Where only
    the whole is wrong (two runs differ, say), every program is tried once.
    """
    if validation.passed or validation.verdict is Verdict.TIMED_OUT:
        return ()
    judged = {p.program: p for p in validation.programs}
    found = [
        (name, case)
        for name in programs
        for case in (_wrong_case(judged[name]) if name in judged else (None,))
    ]
    return tuple(found) or tuple((name, 0) for name in programs)


def _wrong_case(program: ProgramValidation) -> tuple[int, ...]:
    """The first case that failed, if one did."""
    return tuple(sorted(p.case for p in program.parity if not p.passed)[:1])
