"""The checks that a loaded program must pass, one function each."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from menagerie.emulator import Mode, compiling_seconds, running
from menagerie.errors import ArtifactError
from menagerie.format.bundle_manifest import AccuracyData, BundleProgram, Metric, TensorSpec
from menagerie.numerics import Dtype, Tolerance
from menagerie.profile import latency, profile
from menagerie.session import Session
from menagerie.speech.decoding import ctc_tokens
from menagerie.speech.recipe import Recipe, WordGate
from menagerie.speech.recogniser import Program
from menagerie.speech.word_errors import count_errors, read_held_out
from menagerie.tensor_files import Array, narrow, read_tensors, widen
from menagerie.validation.compare import compare, measure, same_bits
from menagerie.validation.findings import (
    AccuracyResult,
    CaseShape,
    Exactness,
    Measurement,
    OutputParity,
    Profile,
    ProgramValidation,
    Refuting,
    WordErrors,
)

if TYPE_CHECKING:
    from menagerie.validation.goldens import GoldenCases

_HALF = 0.5
_LOWEST = 1e-3  # hertz
_QUICK_SECONDS = 0.25  # up to which a case is run twice
_MOST_CHECKED = 0.5  # up to which an emulated rerun is checked too
_MOST_SECONDS = 1.0  # longest case that is timed and run beside a second session
_QUADRATIC = 2.0  # the steepest growth of work with elements, that of attention


def is_quick(seconds: float) -> bool:
    """Return whether a case is quick enough to run twice, even if it does not represent all."""
    return seconds <= _QUICK_SECONDS


def representative_case(elements: Sequence[int], seconds: Sequence[float]) -> int:
    """Return the case that represents all: the largest one that takes at most a second.

    If every case takes longer, return the quickest. Of equal cases return the first.
    """
    cases = range(len(seconds))
    short = [case for case in cases if seconds[case] <= _MOST_SECONDS]
    if not short:
        return min(cases, key=lambda case: seconds[case])
    return max(short, key=lambda case: elements[case])


@dataclass(frozen=True)
class LoadedProgram:
    """A program of the bundle, its open session and its golden cases."""

    entry: BundleProgram
    session: Session
    goldens: GoldenCases

    def run(self, case: int, session: Session | None = None) -> dict[str, Array]:
        """Run a golden case, after the calls that lead to it if the program keeps state.

        The outputs are copies, because the next run may overwrite the originals. `session` may be
        another session of the program.
        """
        session = session or self.session
        session.reset()
        outputs: Mapping[str, Array] = {}
        for number in self.goldens.run_of(case):
            outputs = session.run(self.goldens.inputs(number))
        return {name: np.array(value) for name, value in outputs.items()}

    def in_sequence(self) -> Program:
        """Return the program as gates call it: repeatedly, starting from the initial state."""
        if self.session.keeps_state:
            self.session.reset()
        return Program(self.session.run, self.entry.inputs, self.entry.dimensions)


def _differing(left: Mapping[str, Array], right: Mapping[str, Array]) -> str:
    """Return the name of the first output whose bits differ; empty if all are equal."""
    return next((name for name in left if not same_bits(left[name], right[name])), "")


@dataclass
class Judged:
    """A program's judgement, which grows case by case."""

    program: LoadedProgram
    tolerances: Mapping[Dtype, Tolerance]
    elements: Sequence[int]  # of each case's inputs
    took: list[float] = field(default_factory=list)  # seconds; infinite: left to a real device
    parity: list[OutputParity] = field(default_factory=list)
    exactness: list[Exactness] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)  # faults found so far
    deterministic: bool = True
    latency: Measurement | None = None
    profile: Profile | None = None
    refuting: Refuting | None = None
    case: int = 0  # the representative case, on which all repeated work is done
    outputs: Mapping[str, Array] = field(default_factory=dict)  # of the representative case

    @property
    def validation(self) -> ProgramValidation:
        """The findings for the report."""
        goldens = self.program.goldens
        return ProgramValidation(
            program=self.program.entry.name,
            cases=tuple(
                CaseShape(case=c, dimensions=goldens.dimensions(c), kind=goldens.kind(c))
                for c in range(len(goldens))
            ),
            parity=tuple(self.parity),
            deterministic=self.deterministic,
            latency=self.latency,
            passed=not self.facts,
            exactness=tuple(self.exactness),
            profile=self.profile,
            refuting=self.refuting,
        )

    def run(self, case: int) -> None:
        """Compare a case's outputs with eager's; run it twice if it is quick."""
        outputs, seconds = self._timed(case)
        self.took.append(seconds)
        for spec in self.program.entry.outputs:
            self._compare(case, spec, outputs[spec.name])
        if is_quick(self.took[case]):
            self._run_again(case, outputs)
        if representative_case(self.elements, self.took) == case:
            self.case, self.outputs = case, outputs

    def outlasts(self, case: int, seconds: float) -> bool:
        """Estimate from the times of other cases whether a case takes longer than `seconds`.

        Return False for the first case, which has middle and odd sizes, and for the smallest, which
        always run, and for every case of a program with state, whose calls build on each other.
        """
        if self.program.entry.state or case in {0, self.elements.index(min(self.elements))}:
            return False
        points = [(self.elements[c], t) for c, t in enumerate(self.took) if math.isfinite(t)]
        (few, short), (many, long) = min(points), max(points)
        steep = 1.0
        if long > short > 0 and many > few > 0:
            steep = math.log(long / short) / math.log(many / few)
        ratio = self.elements[case] / max(many, 1)
        estimate: float = long * ratio ** min(max(steep, 1.0), _QUADRATIC)
        return estimate > seconds

    def leave(self) -> None:
        """Leave the next case for a real device."""
        self.took.append(math.inf)

    def finish(self) -> None:
        """Run the representative case again if it was not quick."""
        if not is_quick(self.took[self.case]):
            self._run_again(self.case, self.outputs)

    def run_otherwise(self) -> None:
        """Run the representative case as another device may compute it; record what differs."""
        with running(Mode.OTHER):
            outputs = self.program.run(self.case)
        for spec in self.program.entry.outputs:
            bound = self.tolerances.get(spec.dtype)
            usual, other = self.outputs[spec.name], outputs[spec.name]
            found = compare(usual, other, spec.dtype, bound, case=self.case, name=spec.name)
            if bound is not None and not found.passed:
                same = (self.case, spec.name)  # by which a search finds the node
                said = found.fact.replace("eager", "this mode").replace("artifact", "the other")
                fact = f"depends on a device's subnormals, contraction, atomics or units: {said}"
                found = replace(found, fact=fact)
                self.parity = [found if (p.case, p.output) == same else p for p in self.parity]
                place = f"{_place(self.program, self.case)}, output {spec.name}"
                self.facts.append(f"{place}: {fact}. `zoo debug bisect` names the first node")

    def add_profile(self, seconds: float, threads: int) -> None:
        """Time the emulator's kernels; measuring the machine's peaks takes 256 MiB."""
        session = self.program.session
        if seconds > 0 and session.can_be_profiled:
            run = from_the_start(session, self.program.goldens.inputs(self.case))
            self.profile = profile(session, run, threads=threads, seconds=seconds)

    def take(self, found: Refuting) -> list[str]:
        """Add the results of the attempts to refute the program; return the faults found."""
        self.refuting = found
        place = f"program {self.program.entry.name}"
        facts = [f"{place}, {t.attempt}: {t.fact}" for t in found.tried if t.fact and not t.excuse]
        self.facts += facts
        return facts

    def _timed(self, case: int) -> tuple[dict[str, Array], float]:
        """Run a case; return its outputs and its seconds without shader compilation."""
        began = time.perf_counter() - compiling_seconds()
        outputs = self.program.run(case)
        return outputs, time.perf_counter() - compiling_seconds() - began

    def _compare(self, case: int, spec: TensorSpec, output: Array) -> None:
        """Compare an output with eager's and, only for the report, with the exact result."""
        goldens, bound = self.program.goldens, self.tolerances.get(spec.dtype)
        compared = goldens.compare(case, spec, output, bound)
        self.parity.append(compared)
        if not compared.passed:
            self.facts.append(f"{_place(self.program, case)}, output {spec.name}: {compared.fact}")
        eager, found = goldens.beside(case, spec.name, output)
        truth = goldens.exact(case, spec.name)
        if truth is not None and truth.shape == eager.shape == found.shape:
            eager_db, found_db = (
                measure(truth, widen(each, spec.dtype)).snr_db for each in (eager, found)
            )
            self.exactness.append(
                Exactness(output=spec.name, eager_snr_db=eager_db, artifact_snr_db=found_db)
            )

    def _run_again(self, case: int, before: Mapping[str, Array]) -> None:
        with running(_mode_after(self.took[case])):
            again = self.program.run(case)
        if name := _differing(before, again):
            self.deterministic = False
            place = _place(self.program, case)
            self.facts.append(f"{place}, output {name}: two runs of one input differ")


def _mode_after(seconds: float) -> Mode:
    """Return the mode for reruns of inputs whose memory accesses were all checked.

    After a quick run, another compilation would cost more than the checks.
    """
    return Mode.PLAIN if seconds > _MOST_CHECKED else Mode.CHECKED


def _place(program: LoadedProgram, case: int) -> str:
    return f"program {program.entry.name}, case {case}"


def judge_program(
    program: LoadedProgram,
    tolerances: Mapping[Dtype, Tolerance],
    *,
    step: Callable[[str], None],
    seconds: float,
    threads: int,
    most: float = math.inf,
) -> Judged:
    """Compare every golden case with eager, run some of them twice, and time one for `seconds`.

    An output of a dtype without a tolerance must be bit-equal. `step` is called with the name
    of each step before it can fail. Cases that would exceed `most` seconds in all are left to a
    real device.
    """
    goldens = program.goldens
    found = Judged(program, tolerances, goldens.elements())
    ends = time.perf_counter() + most
    for case in range(len(goldens)):
        step(_place(program, case))
        if found.outlasts(case, ends - time.perf_counter()):
            found.leave()
        else:
            found.run(case)
    step(_place(program, found.case))
    found.finish()
    if seconds > 0:
        step(f"program {program.entry.name}, timing case {found.case}")
        run = from_the_start(program.session, goldens.inputs(found.case))
        found.latency = latency(run, seconds=seconds, threads=threads, case=found.case)
    return found


def from_the_start(session: Session, inputs: Mapping[str, Array]) -> Callable[[], Any]:
    """Return a call to time repeatedly; restoring its state is timed too."""

    def run() -> Mapping[str, Array]:
        session.reset()
        return session.run(inputs)

    return run if session.keeps_state else lambda: session.run(inputs)


def coexists(
    program: LoadedProgram, judged: Judged, open_again: Callable[[BundleProgram], Session]
) -> str:
    """Open the program a second time beside the first, run both, close the second.

    Both run the representative case. A program with state makes all calls of a golden run except
    the last one, then the second session runs: it must neither see nor change the state of the
    first. Return the fault that was found; empty if all runs gave the same bits.
    """
    place = f"program {program.entry.name}"
    calls = program.entry.state.calls if program.entry.state else 1
    last = judged.case - judged.case % calls + calls - 1
    before = judged.outputs if last == judged.case else program.run(last)
    mode = _mode_after(judged.took[judged.case])
    with running(mode), open_again(program.entry) as session:
        if calls > 1:
            program.run(last - 1)
        beside = program.run(last, session)
        if name := _differing(before, beside):
            return f"{place}, output {name}: a second session beside the first gives other bits"
        inputs = program.goldens.inputs(last)
        after = program.session.run(inputs) if calls > 1 else program.run(last)
        if name := _differing(before, after):
            return f"{place}, output {name}: the first session changes when a second is open"
    with running(mode):
        closed = program.run(last)
    if name := _differing(before, closed):
        return f"{place}, output {name}: the first session changes when the second is closed"
    return ""


def accuracy(
    program: Program, gate: AccuracyData, path: Path, *, judges: bool = False
) -> AccuracyResult:
    """Measure accuracy on the gate's data; eager's is measured alike when a bundle is made.

    The last batch is filled up with the last sample, since a program may take one size only. The
    file is safetensors with the program's inputs and `labels`, samples along the first axis;
    floating inputs are rounded to the program's dtypes. A program with state keeps it from one call
    to the next. A sample may have a label for each of its frames. Raise ArtifactError if the data
    lacks a tensor or samples, or the program lacks the gate's output.
    """
    labels, data = _samples(program.inputs, path)
    parts = []
    for start in range(0, len(labels), gate.batch):
        count = min(gate.batch, len(labels) - start)
        rows = np.minimum(np.arange(start, start + gate.batch), len(labels) - 1)
        results = program.run({name: tensor[rows] for name, tensor in data.items()})
        name = gate.output or next(iter(results))
        if name not in results:
            fact = f"has no output {name!r}, by which the accuracy gate judges"
            raise ArtifactError(f"program {gate.program}", fact, f"It has: {', '.join(results)}")
        scores = results[name][:count]
        parts.append(widen(scores, Dtype.BFLOAT16) if scores.dtype == np.uint16 else scores)
    judged = np.concatenate(parts)
    try:
        right = _right(gate.metric, judged, labels)
    except ValueError as error:
        raise ArtifactError(str(path), str(error), "Give `labels` that shape") from error
    return AccuracyResult(
        samples=right.size,
        eager=gate.eager_accuracy,
        artifact=int(np.sum(right)) / right.size,
        slack=gate.slack or 0,
        judges=judges,
    )


def _right(metric: Metric | None, scores: Array, labels: Array) -> Array:
    """Return whether each label is met by a metric (`AccuracyGate` of the zoo).

    A single score is class 1 from 1/2 on. A pitch in hertz is right within 50 cents, as in Salamon
    et al. 2014. A line of text is right if all its characters are; -1 pads its label. Raise
    ValueError if the labels' shape differs from the results', to which NumPy may broadcast them.
    """
    if metric == "text":
        _check_shape(labels, (len(scores), labels.shape[-1]))
        lines = zip(scores, labels, strict=True)
        return np.array([ctc_tokens(line) == [n for n in row if n >= 0] for line, row in lines])
    if metric == "pitch":
        _check_shape(labels, scores.shape)
        octaves = np.log2(np.maximum(scores, _LOWEST) / np.maximum(labels, _LOWEST))
        return np.abs(octaves) <= _HALF / 12
    if metric == "nearest":
        alike = scores.astype(np.float64) @ scores.T
        np.fill_diagonal(alike, -np.inf)
        chosen = labels[np.argmax(alike, axis=1)]
    else:
        single = scores.shape[-1] == 1
        chosen = scores[..., 0] >= _HALF if single else np.argmax(scores, axis=-1)
    _check_shape(labels, chosen.shape)
    return np.asarray(chosen == labels)


def _check_shape(labels: Array, judged: tuple[int, ...]) -> None:
    if labels.shape != judged:
        fact = f"has labels of shape {list(labels.shape)}, the program decides {list(judged)}"
        raise ValueError(fact)


def word_errors(
    programs: Mapping[str, LoadedProgram],
    recipe: Recipe,
    gate: WordGate,
    path: Path,
    *,
    judges: bool = False,
) -> tuple[WordErrors, ...]:
    """Count each head's word errors on the gate's recordings, next to eager's.

    Raise ArtifactError if they (`menagerie.speech.word_errors.read_held_out`) cannot be read, and
    SpeechError if a program does not match the recipe.
    """
    held_out = read_held_out(path)
    callable_programs = {name: program.in_sequence() for name, program in programs.items()}
    return tuple(
        WordErrors(
            head=head,
            words=held_out.words,
            eager=eager,
            artifact=count_errors(recipe, head, callable_programs, held_out, str(path)),
            most=gate.most,
            slack=gate.slack or 0,
            judges=judges,
        )
        for head, eager in gate.errors.items()
    )


def _samples(inputs: Sequence[TensorSpec], path: Path) -> tuple[Array, dict[str, Array]]:
    """Return the gate's labels, and its inputs in the dtypes that the program takes."""
    tensors = read_tensors(path)
    missing = {"labels", *(spec.name for spec in inputs)} - set(tensors)
    if missing:
        fact = f"lacks {min(missing)!r}"
        raise ArtifactError(str(path), fact, f"It has: {', '.join(sorted(tensors))}")
    labels = tensors["labels"]
    if labels.ndim == 0 or labels.size == 0:
        raise ArtifactError(str(path), f"has labels of shape {list(labels.shape)}: no samples")
    found = {}
    for spec in inputs:
        tensor = tensors[spec.name]
        if tensor.ndim == 0 or len(tensor) != len(labels):
            fact = f"{spec.name} has shape {list(tensor.shape)}, there are {len(labels)} labels"
            raise ArtifactError(str(path), fact, "Give a row for each label")
        pairs = zip(spec.shape[1:], tensor.shape[1:], strict=False)
        if tensor.ndim != len(spec.shape) or any(isinstance(n, int) and n != m for n, m in pairs):
            fact = f"{spec.name} has shape {list(tensor.shape)}, "
            fact += f"the program takes [{', '.join(map(str, spec.shape))}]"
            raise ArtifactError(str(path), fact, "Give samples of that shape along the first axis")
        try:
            found[spec.name] = narrow(tensor, spec.dtype)
        except ValueError as error:
            raise ArtifactError(str(path), f"{spec.name} {error}", "Convert it") from error
    return labels, found
