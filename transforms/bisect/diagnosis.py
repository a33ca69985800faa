"""From a bundle that failed validation to the node that is wrong."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from transforms.bisect.search import locate
from transforms.pipeline import make_passes, passes_in
from zoo.precision import Kept
from zoo.records import Diagnosis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from transforms.export.prepare import Prepared
    from transforms.targets import PassItem, Target
    from zoo.records import Suspected
    from zoo.spec import Dtype, Tolerance

__all__ = ["diagnose"]


_FLOATS = Kept()

_NOTHING_FOUND = (
    "Lowered and run by itself, each suspected program agrees with eager: the fault lies in the "
    "bundle, in how often or beside what it is run, or in inputs that were not tried"
)

_NOT_AFTER_A_RESET = (
    "{} keeps state, and what was searched, its first call after a reset, agrees with eager: the "
    "fault shows in later calls, in what is kept. Return the new state beside the results to have "
    "it compared"
)


def diagnose(
    programs: Mapping[str, Prepared],
    suspects: Iterable[Suspected],
    passes: Sequence[PassItem] | None,
    *,
    target: Target,
    kept: Kept = _FLOATS,
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
        passes: as `transforms.stages.transform` took them.
        target: where the program is wrong.
        kept: how its weights are kept.
        tolerances: by which it is.
        folder: for the smallest program that shows the fault; missing or empty.
        seconds: for the whole search.
    """
    end, later = time.monotonic() + seconds, list[str]()
    whole = make_passes(passes_in(kept, passes, target))
    for name, case in suspects:
        program = programs[name]
        for number in range(len(program.goldens)) if case is None else (case,):
            if number % program.calls:
                later.append(f"program {name}")
                continue
            found = locate(
                program.exported.program,
                whole,
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
