"""Converts cases, several in one program, and says of each what came of it."""

from __future__ import annotations

import dataclasses
import re
import tempfile
import warnings
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.sweep.apart import Bounds, Ended, run_apart
from tests.sweep.attempt import without_folders

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.suites.cases import Case

_PRELOAD = "tests.suites.preload"
_TEXT = 600  # characters of a reason that are kept
_DRAWS = re.compile(
    r"aten\.(rand|normal|bernoulli|multinomial|uniform|exponential|geometric|cauchy|log_normal"
    r"|poisson|binomial|dropout|native_dropout|feature_dropout|alpha_dropout|rrelu_with_noise)"
)
_EMPTY = re.compile(r"aten\.(new_)?empty")
BOUNDS = Bounds(seconds=240.0, gigabytes=8.0)


class State(StrEnum):
    """What came of a case."""

    PROVEN = "proven"
    REFUSED = "refused"  # one of our errors: place, fact and next step
    WRONG = "wrong"  # converted, and its numbers are not eager's
    FAILED = "failed"  # another exception than ours: a fault
    CRASHED = "crashed"
    OUT_OF_TIME = "out of time"
    # What no converter of fixed programs can do, which the goals leave out:
    NOT_EXPORTED = "not exported"  # torch.export refuses it
    RANDOM = "random"  # it draws random numbers
    SHAPED_BY_DATA = "shaped by data"  # a size depends on values
    COMPLEX = "complex"  # an input or a result is complex
    NO_TENSOR = "no tensor"  # it has no input or no result that is a tensor
    EAGER_FAILS = "eager fails"
    UNINITIALISED = "uninitialised"  # a result is memory as it was


COUNTED = frozenset(
    (State.PROVEN, State.REFUSED, State.WRONG, State.FAILED, State.CRASHED, State.OUT_OF_TIME)
)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A row of the results.

    Attributes:
        state: see `State`.
        error: the class of what was raised; empty for none.
        text: what it said.
    """

    state: State
    error: str = ""
    text: str = ""

    @classmethod
    def read(cls, fields: dict[str, str]) -> Outcome:
        """Of what JSON made of one."""
        return cls(**{**fields, "state": State(fields["state"])})


def try_together(names: Sequence[str], target: str) -> Iterator[tuple[str, Outcome]]:
    """Convert the cases as one program; those of a program that fails in halves, at last alone."""
    ended = run_apart(_attempt, (tuple(names), target), BOUNDS, _PRELOAD)
    if ended.answer is not None and (len(names) == 1 or _proven(ended.answer)):
        for name, fields in ended.answer.items():
            yield name, Outcome.read(fields)
    elif len(names) == 1:
        yield names[0], _died(ended)
    else:
        for part in (names[: len(names) // 2], names[len(names) // 2 :]):
            yield from try_together(part, target)


def sort_out(names: Sequence[str]) -> Iterator[tuple[str, Outcome | None]]:
    """What is not counted, with its state; None for what is to be converted."""
    ended = run_apart(_sort_out, (tuple(names),), BOUNDS, _PRELOAD)
    if ended.answer is not None:
        for name, fields in ended.answer.items():
            yield name, None if fields is None else Outcome.read(fields)
    elif len(names) == 1:
        yield names[0], None
    else:
        for part in (names[: len(names) // 2], names[len(names) // 2 :]):
            yield from sort_out(part)


def _proven(answer: dict[str, dict[str, str]]) -> bool:
    return all(fields["state"] == State.PROVEN for fields in answer.values())


def _died(ended: Ended) -> Outcome:
    return Outcome(State.OUT_OF_TIME if ended.late else State.CRASHED, text=ended.text)


def _sort_out(names: Sequence[str], _folder: Path) -> dict[str, Any]:
    from tests.suites.cases import cases

    found = {name: not_counted(cases()[name]) for name in names}
    return {n: None if o is None else dataclasses.asdict(o) for n, o in found.items()}


def not_counted(case: Case) -> Outcome | None:
    """Why a case cannot be converted; None where it can."""
    import torch

    from tests.suites.cases import Together

    try:
        with torch.no_grad():
            calls = case.calls()
            results = [t for call in calls for t in call.run(call.tensors)]
            for call in calls:  # a program's inputs are contiguous
                call.run([t.contiguous() for t in call.tensors])
    except Exception as error:  # PyTorch's own, of many kinds
        return _described(State.EAGER_FAILS, error)
    inputs = [t for call in calls for t in call.tensors]
    if not inputs or not results:
        return Outcome(State.NO_TENSOR)
    if any(t.is_complex() for t in (*inputs, *results)):
        return Outcome(State.COMPLEX)
    together = Together(calls)
    try:
        with torch.no_grad():
            program = torch.export.export(together, together.inputs, strict=False)
    except Exception as error:  # as above
        return _described(State.NOT_EXPORTED, error)
    if any(_DRAWS.match(str(node.target)) for node in program.graph.nodes):
        return Outcome(State.RANDOM)
    [output] = program.graph.find_nodes(op="output")
    if any(_EMPTY.match(str(node.target)) for node in output.all_input_nodes):
        return Outcome(State.UNINITIALISED)
    values = [node.meta.get("val") for node in program.graph.nodes]
    sizes = [size for v in values if isinstance(v, torch.Tensor) for size in v.shape]
    if any(isinstance(size, torch.SymInt) for size in sizes):
        return Outcome(State.SHAPED_BY_DATA)
    return None


def _attempt(names: Sequence[str], target: str, folder: Path) -> dict[str, Any]:
    from tests.suites.cases import cases

    outcome = convert_cases([cases()[name] for name in names], target, folder)
    return {name: dataclasses.asdict(outcome) for name in names}


def convert_cases(chosen: Sequence[Case], target: str, folder: Path) -> Outcome:
    """Convert the calls of several cases as one program, which proves itself."""
    from tests.suites.cases import Together
    from transforms import convert
    from zoo.errors import MenagerieError, ValidationError

    together = Together([call for case in chosen for call in case.calls()])
    try:
        with tempfile.TemporaryDirectory(dir=folder) as scratch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = Path(scratch) / "out"
            convert(together, together.inputs, target=target, out=out, measure_seconds=0)
    except ValidationError as error:
        return _described(State.WRONG, error)
    except MenagerieError as error:
        return _described(State.REFUSED, error)
    except Exception as error:  # another exception than ours is a row as well
        return _described(State.FAILED, error)
    return Outcome(State.PROVEN)


def _described(state: State, error: Exception) -> Outcome:
    return Outcome(state, type(error).__name__, without_folders(str(error))[:_TEXT])
