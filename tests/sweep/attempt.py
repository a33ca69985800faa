"""One case on one target, in a process of its own."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.sweep.apart import Bounds, run_apart
from tests.sweep.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sweep.case import Case, Sample
    from tests.sweep.record import State

_CHECKOUT = Path(__file__).parents[2]
_FOLDERS = re.compile(
    rf"{re.escape(str(_CHECKOUT))}/(?!\.venv/)"
    r"|/[^\s'\":]*/(?:site-packages|menagerie-sweep-[^/]+(?:/\.bundle\.[^/]+)?)/"
)
_TEXT = 1500  # characters of an error that are kept


def run(name: str, target: str, bounds: Bounds) -> Record:
    """The record of a case; a process that dies or takes too long is one too."""
    ended = run_apart(_record, (name, target), bounds)
    if ended.answer is not None:
        return dataclasses.replace(Record.read(ended.answer), seconds=ended.seconds)
    state: State = "out of time" if ended.late else "crashed"
    return Record(state, seconds=ended.seconds, text=ended.text)


def _record(name: str, target: str, folder: Path) -> dict[str, Any]:
    from tests.sweep.catalogue import catalogue

    return dataclasses.asdict(attempt(catalogue()[name], target, folder / "bundle"))


def attempt(case: Case, target: str, out: Path) -> Record:
    """Convert a case with all of its sizes dynamic, then with fewer until that works.

    Args:
        case: what to convert.
        target: what for.
        out: where the bundle goes.
    """
    import torch

    try:
        sample = _sample(case)
    except Exception as error:  # the library's own, on this machine
        return _failed(Record("does not run", exported=False), error)
    found = Record("failed", parameters=sum(p.numel() for p in sample.module.parameters()))
    refused: dict[str, str] = {}
    for wanted in _attempts(sample):
        try:
            made = _convert(sample, wanted, target, out)
        except Exception as error:  # another exception than ours is a row as well
            found = _failed(found, error)
            refused.setdefault(_named(sample, wanted), found.text)
            continue
        narrowed = "; ".join(f"{names}: {_line(text)}" for names, text in refused.items())
        return dataclasses.replace(
            found,
            state="proven",
            exported=True,
            snr_db=_finite(made.report.worst_snr_db),
            dynamic=tuple(_named(sample, {name}) for name in sorted(wanted)),
            narrowed=narrowed,
            missing=(),
            error="",
            text="",
        )
    with torch.no_grad():
        return dataclasses.replace(found, exported=_exports(sample))


def _sample(case: Case) -> Sample:
    """The case's module, alive: in random weights every layer matters to what comes out."""
    import torch

    from zoo.sources.random_weights import strengthen

    torch.manual_seed(0)
    sample = case.build()
    sample.module.requires_grad_(requires_grad=False)
    strengthen(sample.module, lambda: sample.module(*sample.inputs.values()))
    with torch.no_grad():
        sample.module(*sample.inputs.values())
    return sample


def _attempts(sample: Sample) -> Iterator[set[str]]:
    """All sizes, the batch alone, none."""
    everything = set(sample.ranges)
    if everything:
        yield everything
    if "batch" in everything and len(everything) > 1:
        yield {"batch"}
    yield set()


def _convert(sample: Sample, wanted: set[str], target: str, out: Path) -> Any:
    from transforms import Program, convert

    shapes = sample.shapes(wanted)
    program = Program(
        sample.module, tuple(sample.inputs.values()), {}, sample.by_position(shapes),
        {"inputs": tuple(sample.inputs)},
    )  # fmt: skip
    return convert({"main": program}, target=target, out=out, model="swept", measure_seconds=0)


def _exports(sample: Sample) -> bool:
    import torch

    try:
        torch.export.export(sample.module, tuple(sample.inputs.values()), strict=False)
    except Exception:  # torch raises many kinds here
        return False
    return True


def _failed(found: Record, error: Exception) -> Record:
    """The record of a failure, by the kind of its error."""
    from zoo.errors import MenagerieError, UnsupportedKernels, ValidationError

    state = found.state
    if state != "does not run":
        ours = isinstance(error, MenagerieError)
        state = "wrong" if isinstance(error, ValidationError) else "refused" if ours else "failed"
    missing = tuple(sorted(error.uses)) if isinstance(error, UnsupportedKernels) else ()
    return dataclasses.replace(
        found,
        state=state,
        missing=missing,
        error=type(error).__name__,
        text=without_folders(str(error))[:_TEXT],
    )


def without_folders(text: str) -> str:
    """Leave out of a message where this machine has the checkout, its packages and bundles."""
    return _FOLDERS.sub("", text)


def _named(sample: Sample, wanted: set[str]) -> str:
    """Sizes with their ranges, e.g. `batch 1..3, length 4..24`."""
    ranges = (
        f"{name} {sample.ranges[name][0]}..{sample.ranges[name][1]}" for name in sorted(wanted)
    )
    return ", ".join(ranges) or "fixed sizes"


def _line(text: str) -> str:
    return " ".join(text.split())[:300]


def _finite(value: float | None) -> float | None:
    return None if value is None or value == float("inf") else round(value, 1)
