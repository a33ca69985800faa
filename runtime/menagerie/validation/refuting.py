"""Attempts to refute a program: zeros, NaN, ends of a dtype, wrong indices, a second call.

Golden cases resemble the example, and whatever they never contain may fail. An attempt changes the
inputs of one golden case; the program's file with the role `refuting` has eager PyTorch's answers.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from menagerie.errors import ArtifactError, SessionError
from menagerie.format.bundle_manifest import TensorSpec
from menagerie.numerics import Dtype, TextEnum, Tolerance
from menagerie.tensor_files import Array, Float64, narrow, read_notes, read_tensors, stored, widen
from menagerie.typed_json import Malformed, from_json
from menagerie.validation.compare import compare, measure
from menagerie.validation.findings import OutputParity, Refutation, Refuting
from menagerie.validation.samples import every

if TYPE_CHECKING:
    from menagerie.session import Session

NOTE = "refuting"  # the key of `Plan` in the file's metadata


class Kind(TextEnum):
    """The kinds of attempts, in the order in which they are tried."""

    ONE_NAN = "one NaN"
    ZEROS = "zeros"
    SECOND_CALL = "second call"  # the golden inputs again
    EQUAL = "all equal"
    NEGATIVE = "all negative"
    TIES = "repeated rows and ties"
    LARGE = "large numbers"
    INFINITIES = "both infinities"
    ALL_NAN = "NaN alone"
    TINY = "tiny numbers"
    HUGE = "huge numbers"
    HIGHEST = "highest number"
    LOWEST = "lowest number"
    INDEX = "index"


_ENDS = frozenset((Kind.HIGHEST, Kind.LOWEST))
_OVERFLOWING = _ENDS | {Kind.HUGE}
SPECIAL = _OVERFLOWING | {Kind.ONE_NAN, Kind.INFINITIES, Kind.ALL_NAN, Kind.TINY}
_OF_INTEGERS = (Kind.ZEROS, Kind.HIGHEST, Kind.LOWEST, Kind.NEGATIVE)  # bool uses the first two
_CHECKS = "eager checks values that an artifact does not"
_OUTSIDE = re.compile(r"out of (range|bounds)")  # indices, which an artifact checks too
_FLUSHED = frozenset((Dtype.FLOAT32, Dtype.BFLOAT16))  # dtypes whose subnormals a GPU flushes
_ALWAYS = 5  # attempts made regardless of their time
_MOST_ALONE = 4  # floating inputs that get an attempt with NaN in one of them alone
_FEWEST_BESIDE = 8  # elements that a slice needs to estimate eager's error
_TIMES_EAGERS = 10.0  # allowed multiple of eager's own error against float64


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt to refute a program."""

    kind: Kind  # what it does
    input: str = ""  # the one input that it changes; empty: every floating one
    value: int = 0  # the index of `Kind.INDEX`
    raises: str = ""  # eager PyTorch's message if it rejects these inputs

    def __str__(self) -> str:
        """Return the name in reports, e.g. `one NaN` or `index -1 in words`."""
        value = f" {self.value}" * (self.kind is Kind.INDEX)
        return f"{self.kind}{value}" + f" in {self.input}" * bool(self.input)

    def inputs(self, golden: Mapping[str, Array], specs: Sequence[TensorSpec]) -> dict[str, Array]:
        """Return the inputs of a golden case with this attempt's changes."""
        made = {name: golden[name] for name in (spec.name for spec in specs)}
        for spec in specs if self.kind is not Kind.SECOND_CALL else ():
            if spec.name == self.input if self.input else spec.dtype.is_floating:
                made[spec.name] = self._changed(made[spec.name], spec.dtype)
        return made

    def _changed(self, golden: Array, dtype: Dtype) -> Array:
        # NumPy turns an array without axes into a number.
        return np.asarray(self._numbers(golden, dtype))

    def _numbers(self, golden: Array, dtype: Dtype) -> Array:
        if dtype.is_floating:
            bits = {Dtype.FLOAT16: 10, Dtype.BFLOAT16: 7, Dtype.FLOAT32: 23, Dtype.FLOAT64: 52}
            exponent = {Dtype.FLOAT16: 15, Dtype.FLOAT64: 1023}.get(dtype, 127)
            largest = 2.0**exponent * (2.0 - 2.0 ** -bits[dtype])
            return narrow(_FLOATS[self.kind](widen(golden, dtype), largest), dtype)
        if dtype is Dtype.BOOL:
            return np.full_like(golden, self.kind is Kind.HIGHEST)
        info = np.iinfo(stored(dtype))
        if self.kind is Kind.NEGATIVE:
            return -1 - (golden & 63) if info.min else golden
        # Dividing the lowest wide integer by -1 kills eager's process, so the next one is used.
        lowest = info.min + (info.bits > 16)  # noqa: PLR2004
        ends = {Kind.ZEROS: 0, Kind.HIGHEST: info.max, Kind.LOWEST: lowest}
        return np.full_like(golden, ends.get(self.kind, self.value))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All attempts of a program."""

    golden: int  # number of the golden case that they change
    attempts: tuple[Attempt, ...]  # in order; tried while there is time
    left_out: int = 0  # attempts that would take too long
    excuse: str = ""  # why a difference is only reported; empty if it refutes
    special: str = ""  # why a difference with NaN or extreme numbers is only reported
    spread: str = ""  # why NaN where eager has none is only reported
    order: str = ""  # why different numbers at the ends of a float's range are only reported
    # Why infinities or NaN that eager does not have at huge numbers are only reported
    overflow: str = "products and sums of infinities have an order of their own"
    # By the name of a reason above: the outputs to which it applies; if missing: all of them
    reaches: dict[str, tuple[str, ...]] = field(default_factory=dict)
    special_kinds: tuple[Kind, ...] | None = None  # to which `special` applies; None: to all
    # Outputs that are the same for all ordinary inputs
    constant: tuple[str, ...] = ()


def attempts(specs: Sequence[TensorSpec], indices: Mapping[str, Sequence[int]]) -> list[Attempt]:
    """List attempts for a program's inputs, most effective first; `indices` is by input name."""
    widths = {spec.dtype for spec in specs if spec.dtype.is_floating}
    kinds = list(Kind)[:-1] if widths else [Kind.SECOND_CALL]
    # Sums of float16 overflow by their order from 65,504 on.
    none = {Kind.TINY, Kind.LARGE, Kind.HUGE} if Dtype.FLOAT16 in widths else set()
    found = [Attempt(kind=kind) for kind in kinds if kind not in none]
    floats = [spec.name for spec in specs if spec.dtype.is_floating]
    # With NaN at the same place in every input, one of them hides the effect of another.
    alone = floats[:_MOST_ALONE] if len(floats) > 1 else []
    found[1:1] = [Attempt(kind=Kind.ONE_NAN, input=name) for name in alone]
    for spec in (spec for spec in specs if not spec.dtype.is_floating):
        ends = _OF_INTEGERS[: 2 if spec.dtype is Dtype.BOOL else None]
        found += [Attempt(kind=kind, input=spec.name) for kind in ends]
        values = indices.get(spec.name, ())
        found += [Attempt(kind=Kind.INDEX, input=spec.name, value=value) for value in values]
    return found


def _at(values: Float64, *put: float) -> Float64:
    """Return a copy with the numbers `put` at places that divide it into equal parts."""
    found: Float64 = values.copy()
    for number, value in enumerate(put, 1):
        found.reshape(-1)[found.size * number // (len(put) + 1) :][:1] = value
    return found


def _ties(values: Float64) -> Float64:
    """Return the signs of the numbers, with every row replaced by the first."""
    rows: Float64 = np.sign(values)
    if rows.ndim > 1:
        rows[...] = rows[..., :1, :]
    return rows


_FLOATS: Mapping[Kind, Callable[[Float64, float], Float64]] = {
    Kind.ONE_NAN: lambda x, _: _at(x, np.nan),
    Kind.ZEROS: lambda x, _: np.zeros_like(x),
    Kind.EQUAL: lambda x, _: np.full_like(x, 3.3),
    Kind.NEGATIVE: lambda x, _: -1.0 - np.abs(x),
    Kind.TIES: lambda x, _: _ties(x),
    Kind.LARGE: lambda x, _: x * 100.0,  # whose exponential overflows
    Kind.INFINITIES: lambda x, _: _at(x, np.inf, -np.inf),
    Kind.ALL_NAN: lambda x, _: np.full_like(x, np.nan),
    Kind.TINY: lambda x, _: x * 1e-25,  # whose square underflows in float32
    Kind.HUGE: lambda x, _: x * 1e20,
    Kind.HIGHEST: np.full_like,
    Kind.LOWEST: lambda x, largest: np.full_like(x, -largest),
}


def refute(
    session: Session,
    golden: Callable[[int], Mapping[str, Array]],
    file: Path,
    tolerances: Mapping[Dtype, Tolerance],
    *,
    seconds: float,
) -> Refuting:
    """Run as many attempts as fit into `seconds`, and compare each with eager.

    Args:
        session: a session of the program.
        golden: returns the inputs of a golden case by its number.
        file: safetensors; the note `NOTE` is a `Plan`, `<attempt>/output/<name>` eager's answer,
            `<attempt>/doubt/<name>` its distance from float64, infinite where only one of the two
            is infinite or NaN, and left out where it is 0 or unknown. Large tensors are samples, as
            in `menagerie.validation.samples`. A broken file raises ArtifactError.
        tolerances: by output dtype.
        seconds: time in which all but the first five attempts are expected to end.
    """
    began, found = time.perf_counter(), list[Refutation]()
    try:
        plan, tensors = from_json(Plan, read_notes(file)[NOTE]), read_tensors(file)
        base = golden(plan.golden)
        for number, attempt in enumerate(plan.attempts):
            spent = time.perf_counter() - began
            if len(found) >= _ALWAYS and spent * (1 + 1 / len(found)) > seconds:
                break
            start = f"{number}/"
            answers = {n[len(start) :]: t for n, t in tensors.items() if n.startswith(start)}
            shown = _difference(session, attempt, base, answers, tolerances)
            excuse = _excuse(plan, attempt, shown) if shown.fact else ""
            found.append(Refutation(attempt=str(attempt), fact=shown.fact, excuse=excuse))
    except (KeyError, ValueError, Malformed) as error:
        raise ArtifactError(str(file), f"has no sound attempts: {error}") from error
    return Refuting(
        tried=tuple(found),
        planned=len(plan.attempts) + plan.left_out,
        seconds=time.perf_counter() - began,
        constant=plan.constant,
    )


class _Way(TextEnum):
    """How an output differs from eager's."""

    NUMBERS = "numbers"
    KINDS = "kinds"  # infinite or NaN where the other is not
    MORE_NAN = "more NaN"  # NaN where eager has none, and no other difference


@dataclass(frozen=True)
class _Difference:
    """The difference that an attempt shows; an empty fact means none."""

    fact: str = ""
    way: _Way = _Way.NUMBERS
    output: str = ""  # empty if the call itself differs


def _excuse(plan: Plan, attempt: Attempt, shown: _Difference) -> str:
    """Return why a difference is only reported; empty if it refutes the program."""
    kind, way = attempt.kind, shown.way

    def reason(name: str) -> str:
        told: str = getattr(plan, name)
        reached = plan.reaches.get(name)
        return told if reached is None or not shown.output or shown.output in reached else ""

    special = reason("special")
    if plan.special_kinds is not None and kind not in plan.special_kinds:
        special = ""
    if attempt.input and kind is not Kind.ONE_NAN:  # attempts on integers
        return plan.excuse or special * (kind in _ENDS and way is _Way.KINDS)
    if plan.excuse:
        return plan.excuse
    if attempt.raises:
        return special if _OUTSIDE.search(attempt.raises) else _CHECKS
    if kind not in SPECIAL:
        return special * (plan.special_kinds is not None)
    spread = reason("spread") if way is _Way.MORE_NAN else ""
    is_overflow = way is not _Way.NUMBERS and kind in _OVERFLOWING
    is_overflow |= way is _Way.MORE_NAN and kind is Kind.INFINITIES
    order = reason("order") if kind in _ENDS else ""
    return special or spread or order or reason("overflow") * is_overflow


def _difference(
    session: Session,
    attempt: Attempt,
    base: Mapping[str, Array],
    answers: Mapping[str, Array],
    tolerances: Mapping[Dtype, Tolerance],
) -> _Difference:
    session.reset()
    try:
        outputs = session.run(attempt.inputs(base, session.inputs))
    except SessionError as error:
        return _Difference("" if attempt.raises else f"fails where eager answers: {error}")
    finally:
        session.reset()
    if attempt.raises:
        return _Difference(f"answers where eager refuses: {attempt.raises}")
    for spec in session.outputs:
        eager, doubt = answers[f"output/{spec.name}"], answers.get(f"doubt/{spec.name}")
        steps = answers.get(f"steps/{spec.name}")  # of a large output, which is sampled
        found = outputs[spec.name] if steps is None else every(outputs[spec.name], steps.tolist())
        tolerance = tolerances.get(spec.dtype)
        judged = _judged(eager, found, doubt, spec, tolerance)
        least = 0.0 if tolerance is None else tolerance.snr_db or 0.0
        fact, way = f"output {spec.name}: {judged.fact}", _Way.NUMBERS
        if attempt.kind is Kind.TINY and judged.scale and judged.snr_db < least:
            fact = f"output {spec.name}: SNR {judged.snr_db:.1f} dB"
        elif judged.passed:
            continue
        elif not judged.nonfinite_match:
            left, right = (widen(each, spec.dtype) for each in (eager, found))
            more = measure(np.where(np.isnan(right), right, left), right).nonfinite_match
            way = _Way.MORE_NAN if more else _Way.KINDS
        return _Difference(fact, way, spec.name)
    return _Difference()


def _judged(
    eager: Array, found: Array, doubt: Array | None, spec: TensorSpec, tolerance: Tolerance | None
) -> OutputParity:
    """Compare an output with eager's, allowing for eager's own error against float64, `doubt`.

    Numbers below the smallest normal one count as equal, because a GPU flushes them to zero.
    """
    if spec.dtype in _FLUSHED and found.shape == eager.shape:
        largest = np.maximum(*(np.abs(widen(each, spec.dtype)) for each in (found, eager)))
        found = np.where(largest < np.finfo(np.float32).tiny, eager, found)
    if doubt is None or found.shape != eager.shape:
        return compare(eager, found, spec.dtype, tolerance, case=0, name=spec.name)
    found = np.where(np.isfinite(doubt), found, eager)
    judged = compare(eager, found, spec.dtype, tolerance, case=0, name=spec.name)
    if not judged.nonfinite_match:
        return judged
    left, right = widen(eager, spec.dtype), widen(found, spec.dtype)
    error = np.abs(np.where(np.isfinite(left), right - left, 0.0))
    if np.all(error <= _TIMES_EAGERS * _doubts(np.where(np.isfinite(doubt), doubt, 0.0))):
        return replace(judged, passed=True, snr_db=np.inf)
    return judged


def _doubts(doubt: Float64) -> Float64:
    """Return each element's doubt: the largest in its slice, along the axis where that is least.

    Slices of few elements are not used, since their doubt may be 0 by chance.
    """
    found = np.full(doubt.shape, np.max(doubt, initial=0.0))
    for axis, size in enumerate(doubt.shape):
        if doubt.size >= _FEWEST_BESIDE * size:
            others = tuple(n for n in range(doubt.ndim) if n != axis)
            found = np.minimum(found, np.max(doubt, axis=others, keepdims=True))
    return found
