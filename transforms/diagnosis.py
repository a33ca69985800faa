"""From a bundle that failed validation to the node that is wrong."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from transforms.bisect import locate
from transforms.pipeline import make_passes
from zoo.errors import ValidationError
from zoo.records import Diagnosis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from transforms.export.prepare import Prepared
    from transforms.targets import PassItem, Target
    from zoo.records import Suspected, ValidationReport
    from zoo.spec import Dtype, Tolerance

__all__ = ["diagnose", "failed_proof"]


_NOTHING_FOUND = (
    "Lowered and run by itself, each suspected program agrees with eager: the fault lies in the "
    "bundle, in how often or beside what it is run, or in inputs that were not tried"
)

_NOT_AFTER_A_RESET = (
    "{} keeps state, and what was searched, its first call after a reset, agrees with eager: the "
    "fault shows in later calls, in what is kept. Return the new state beside the results to have "
    "it compared"
)

_SEARCH = (
    "Call convert with search_seconds=600 (`zoo compile --search-minutes 10`) to find the first "
    "node that is wrong, or allow more with tolerances="
)


_KEEP = "Leave it as it is with keep= (precisions of integers), or allow more with tolerances="


def failed_proof(
    validation: ValidationReport, search: Diagnosis | None, rounding: str = ""
) -> ValidationError:
    """The error that says what of a bundle is not as eager's, and what to do about it.

    Args:
        validation: that did not pass.
        search: for the cause; None if there was none.
        rounding: which layer's rounding costs most, where weights were rounded.
    """
    wrong = next(
        ((p.program, o) for p in validation.programs for o in p.parity if not o.passed), None
    )
    fact = f"{validation.verdict}: {validation.detail}"
    if wrong is not None:
        fact = f"output {wrong[1].output!r} of golden case {wrong[1].case}: {wrong[1].fact}"
    place = f"program {wrong[0]}" if wrong is not None else "validation"
    if search is None:
        is_rounded = rounding and wrong is not None
        return ValidationError(place, fact, f"{rounding}. {_KEEP}" if is_rounded else _SEARCH)
    if search.divergence is None:
        return ValidationError(place, fact, search.detail)
    found = search.divergence
    line = f", {found.source_line}" if found.source_line else ""
    blamed = f"pass {found.pass_name}" if found.pass_name else "lowering"
    node = f"{found.node} ({found.operator} of {found.module_path or 'model'}{line})"
    again = f" Run it alone: {found.command}" if found.command else ""
    return ValidationError(place, fact, f"First wrong: {node}, by {blamed}.{again}")


def diagnose(
    programs: Mapping[str, Prepared],
    suspects: Iterable[Suspected],
    passes: Sequence[PassItem],
    *,
    target: Target,
    tolerances: Callable[[Dtype], Tolerance | None],
    folder: Path,
    seconds: float,
) -> Diagnosis:
    """Search the suspected programs for the first node that computes something else than eager.

    Args:
        programs: by name, before the passes.
        suspects: programs and golden cases that may show the fault, the likeliest first; no case
            means any of them. Of a program that keeps state only the first call of a run can be
            searched.
        passes: as they were run, all of them (`passes_in`).
        target: where the program is wrong.
        tolerances: by which it is.
        folder: for the smallest program that shows the fault; missing or empty.
        seconds: for the whole search.
    """
    end, later = time.monotonic() + seconds, list[str]()
    for name, case in suspects:
        program = programs[name]
        for number in range(len(program.goldens)) if case is None else (case,):
            if number % program.calls:
                later.append(f"program {name}")
                continue
            found = locate(
                program.exported.program,
                make_passes(passes),
                list(program.goldens[number].inputs.values()),
                target=target,
                tolerances=tolerances,
                folder=folder,
                seconds=end - time.monotonic(),
            )
            if found is not None:
                return Diagnosis(program=name, case=number, divergence=found)
    if later:
        return Diagnosis(detail=_NOT_AFTER_A_RESET.format(later[0]))
    return Diagnosis(detail=_NOTHING_FOUND)
