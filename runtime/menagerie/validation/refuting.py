"""Inputs that try to refute a program: zeros, NaN, ends of a dtype, wrong indices, a second call.

Golden cases look like the example, and what they never show can be wrong. Each attempt changes one
golden case; eager PyTorch's answers are in the program's file of the role `refuting`, as
`<attempt>/output/<name>`, and its inputs are made again here.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from menagerie.errors import ArtifactError, SessionError
from menagerie.numerics import Dtype, TextEnum
from menagerie.tensor_files import narrow, read_notes, read_tensors, stored, widen
from menagerie.typed_json import Malformed, from_json
from menagerie.validation.compare import compare
from menagerie.validation.findings import Refutation, Refuting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from menagerie.format.bundle_manifest import TensorSpec
    from menagerie.numerics import Tolerance
    from menagerie.session import Session
    from menagerie.tensor_files import Array, Float64
    from menagerie.validation.findings import OutputParity

NOTE = "refuting"  # the key of `Plan` in the file's metadata
_EQUAL = 3.3
_TINY, _HUGE = 1e-25, 1e20  # whose squares float32 does not hold


class Kind(TextEnum):
    """What an attempt does with a golden case's inputs."""

    ONE_NAN = "one NaN"
    ZEROS = "zeros"
    SECOND_CALL = "second call"  # the golden inputs again
    EQUAL = "all equal"
    NEGATIVE = "all negative"
    TIES = "repeated rows and ties"
    INFINITIES = "both infinities"
    ALL_NAN = "NaN alone"
    TINY = "tiny numbers"
    HUGE = "huge numbers"
    HIGHEST = "highest number"
    LOWEST = "lowest number"
    INDEX = "index"


_OVERFLOWING = frozenset((Kind.HUGE, Kind.HIGHEST, Kind.LOWEST))
_SPECIAL = _OVERFLOWING | {Kind.ONE_NAN, Kind.INFINITIES, Kind.ALL_NAN, Kind.TINY}
_ORDER = "sums overflow in an order of their own"
_CHECKS = "eager checks values that an artifact does not"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One try.

    Attributes:
        kind: what it does.
        input: the one input that it changes; empty: every floating one.
        value: of an index.
        raises: what eager PyTorch says where it refuses these inputs.
    """

    kind: Kind
    input: str = ""
    value: int = 0
    raises: str = ""

    def __str__(self) -> str:
        """As reports call it, e.g. `one NaN` or `index -1 in words`."""
        value = f" {self.value}" * (self.kind is Kind.INDEX)
        return f"{self.kind}{value}" + f" in {self.input}" * bool(self.input)

    def inputs(self, golden: Mapping[str, Array], specs: Sequence[TensorSpec]) -> dict[str, Array]:
        """Return a golden case's inputs, changed."""
        return {
            spec.name: _changed(self, golden[spec.name], spec.dtype)
            if self.kind is not Kind.SECOND_CALL and self._changes(spec)
            else golden[spec.name]
            for spec in specs
        }

    def _changes(self, spec: TensorSpec) -> bool:
        return spec.name == self.input if self.input else spec.dtype.is_floating


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All attempts of a program.

    Attributes:
        golden: number of the golden case that they change.
        attempts: in the order in which they are tried while there is time.
        excuse: why a difference is only reported; empty where it refutes.
        special: why one with extreme numbers or NaN is only reported.
    """

    golden: int
    attempts: tuple[Attempt, ...]
    excuse: str = ""
    special: str = ""


def attempts(specs: Sequence[TensorSpec], indices: Mapping[str, Sequence[int]]) -> list[Attempt]:
    """Return what can be tried with such inputs, what refutes most first.

    Args:
        specs: the program's inputs.
        indices: values for whole inputs of integers, by name.
    """
    widths = {spec.dtype for spec in specs if spec.dtype.is_floating}
    kinds = list(Kind)[:-1] if widths else [Kind.SECOND_CALL]
    if Dtype.FLOAT16 in widths:  # which has neither number
        kinds = [kind for kind in kinds if kind not in {Kind.TINY, Kind.HUGE}]
    found = [Attempt(kind=kind) for kind in kinds]
    for spec in specs:
        if not spec.dtype.is_floating:
            ends = [Kind.ZEROS, Kind.HIGHEST, Kind.LOWEST, Kind.NEGATIVE]
            found += [
                Attempt(kind=kind, input=spec.name)
                for kind in (ends[:2] if spec.dtype is Dtype.BOOL else ends)
            ]
            found += [
                Attempt(kind=Kind.INDEX, input=spec.name, value=value)
                for value in indices.get(spec.name, ())
            ]
    return found


def _changed(attempt: Attempt, golden: Array, dtype: Dtype) -> Array:
    if dtype.is_floating:
        return narrow(_FLOATS[attempt.kind](widen(golden, dtype), _largest(dtype)), dtype)
    if dtype is Dtype.BOOL:
        return np.full_like(golden, attempt.kind is Kind.HIGHEST)
    info = np.iinfo(stored(dtype))
    if attempt.kind is Kind.NEGATIVE:
        return -1 - (golden & 63) if info.min else golden
    # The lowest one divided by -1 ends eager's process: of wide integers the next is taken.
    lowest = info.min + (info.bits > 16)  # noqa: PLR2004
    ends = {Kind.ZEROS: 0, Kind.HIGHEST: info.max, Kind.LOWEST: lowest}
    return np.full_like(golden, ends.get(attempt.kind, attempt.value))


def _largest(dtype: Dtype) -> float:
    if dtype is Dtype.BFLOAT16:
        return 2.0**127 * (2.0 - 2.0**-7)
    return float(np.finfo(stored(dtype)).max)


def _at(values: Float64, **places: float) -> Float64:
    """Put numbers at one or two places within a copy."""
    found = values.copy()
    for number, value in enumerate(places.values(), 1):
        found.reshape(-1)[found.size * number // (len(places) + 1) :][:1] = value
    return found


def _ties(values: Float64) -> Float64:
    """Return signs alone, and of all rows the first."""
    rows = np.sign(values)
    return np.broadcast_to(rows[..., :1, :], rows.shape) if rows.ndim > 1 else rows


_FLOATS: Mapping[Kind, Callable[[Float64, float], Float64]] = {
    Kind.ONE_NAN: lambda x, _: _at(x, nan=np.nan),
    Kind.ZEROS: lambda x, _: np.zeros_like(x),
    Kind.EQUAL: lambda x, _: np.full_like(x, _EQUAL),
    Kind.NEGATIVE: lambda x, _: -1.0 - np.abs(x),
    Kind.TIES: lambda x, _: _ties(x),
    Kind.INFINITIES: lambda x, _: _at(x, high=np.inf, low=-np.inf),
    Kind.ALL_NAN: lambda x, _: np.full_like(x, np.nan),
    Kind.TINY: lambda x, _: x * _TINY,
    Kind.HUGE: lambda x, _: x * _HUGE,
    Kind.HIGHEST: np.full_like,
    Kind.LOWEST: lambda x, most: np.full_like(x, -most),
}


class RefutingFile:
    """The attempts of a program, and what eager PyTorch answers.

    Args:
        path: the program's file of the role `refuting`.

    Raises:
        ArtifactError: it is broken.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._tensors = path, read_tensors(path)
        try:
            self.plan = from_json(Plan, read_notes(path).get(NOTE, "{}"))
        except Malformed as error:
            raise ArtifactError(str(path), f"its note {NOTE!r} {error}") from error

    def answers(self, number: int) -> dict[str, Array]:
        """Return what eager says to an attempt: `output/<name>`, and `doubt/<name>`.

        Doubt is the distance of each element from what eager gives in float64, infinite where one
        of the two is infinite or NaN; it is left out where there is none, or it is not known.
        """
        start = f"{number}/"
        return {n.removeprefix(start): t for n, t in self._tensors.items() if n.startswith(start)}

    def ordinary_outputs(self) -> list[dict[str, Array]]:
        """Return eager's outputs of the attempts with finite numbers of ordinary size."""
        numbers = [
            n for n, a in enumerate(self.plan.attempts) if a.kind not in _SPECIAL and not a.raises
        ]
        answers = [self.answers(number) for number in numbers]
        return [
            {n[7:]: t for n, t in found.items() if n.startswith("output/")} for found in answers
        ]


_TIMES_EAGERS = 10.0  # that an error may be, of eager's own beside float64


def refute(
    session: Session,
    golden: Callable[[int], Mapping[str, Array]],
    file: RefutingFile,
    tolerances: Mapping[Dtype, Tolerance],
    *,
    seconds: float,
) -> Refuting:
    """Run the attempts, as many as there is time for, and compare each with eager.

    Args:
        session: of the program.
        golden: the inputs of a golden case, by its number.
        file: the attempts.
        tolerances: by output dtype.
        seconds: after which no attempt begins but the first.
    """
    began, base = time.perf_counter(), golden(file.plan.golden)
    found = list[Refutation]()
    for number, attempt in enumerate(file.plan.attempts):
        if found and time.perf_counter() - began > seconds:
            break
        fact, is_overflow = _difference(session, attempt, base, file.answers(number), tolerances)
        excuse = _excuse(file.plan, attempt, is_overflow=is_overflow) if fact else ""
        found.append(Refutation(attempt=str(attempt), fact=fact, excuse=excuse))
    return Refuting(
        tried=tuple(found),
        planned=len(file.plan.attempts),
        seconds=time.perf_counter() - began,
    )


def _excuse(plan: Plan, attempt: Attempt, *, is_overflow: bool) -> str:
    """Return why a difference is only reported; empty where it refutes the program."""
    if plan.excuse or attempt.input:
        return plan.excuse
    if attempt.raises:
        return _CHECKS
    special = plan.special if attempt.kind in _SPECIAL else ""
    return special or (_ORDER if is_overflow and attempt.kind in _OVERFLOWING else "")


def _difference(
    session: Session,
    attempt: Attempt,
    base: Mapping[str, Array],
    answers: Mapping[str, Array],
    tolerances: Mapping[Dtype, Tolerance],
) -> tuple[str, bool]:
    """Return what one attempt shows, and whether that is of infinities or NaN alone."""
    session.reset()
    try:
        outputs = session.run(attempt.inputs(base, session.inputs))
    except SessionError as error:
        return ("" if attempt.raises else f"fails where eager answers: {error}"), False
    finally:
        session.reset()
    if attempt.raises:
        return f"answers where eager refuses: {attempt.raises}", False
    for spec in session.outputs:
        eager, found = answers[f"output/{spec.name}"], outputs[spec.name]
        doubt = answers.get(f"doubt/{spec.name}")
        judged = _judged(eager, found, doubt, spec, tolerances.get(spec.dtype))
        if attempt.kind is Kind.TINY and _loses(judged):
            return f"output {spec.name}: SNR {judged.snr_db:.1f} dB", False
        if not judged.passed:
            return f"output {spec.name}: {judged.fact}", not judged.nonfinite_match
    return "", False


def _loses(judged: OutputParity) -> bool:
    """Return whether tiny numbers got lost, which no absolute error shows."""
    least = None if judged.tolerance is None else judged.tolerance.snr_db
    return bool(judged.scale) and least is not None and judged.snr_db < least


def _judged(
    eager: Array, found: Array, doubt: Array | None, spec: TensorSpec, tolerance: Tolerance | None
) -> OutputParity:
    """Compare an output with eager's where eager is sure of it, by its own error beside float64."""
    slack = 0.0
    if doubt is not None and found.shape == eager.shape:
        slack = _TIMES_EAGERS * float(np.max(doubt, initial=0.0, where=np.isfinite(doubt)))
        found = np.where(np.isfinite(doubt), found, eager)
    judged = compare(eager, found, spec.dtype, tolerance, case=0, name=spec.name)
    near = judged.nonfinite_match and judged.max_abs <= slack
    exact = judged.max_abs <= slack and slack > 0.0
    return replace(judged, passed=judged.passed or near, snr_db=np.inf if exact else judged.snr_db)
