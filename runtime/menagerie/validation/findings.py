"""The findings of a validation: frozen records, in reports and as JSON lines in the worker's pipe.

The stream of events makes a crash attributable: its last step shows where the worker died, and
its findings show what had been proven by then.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from menagerie.figures import count, percent, seconds
from menagerie.numerics import ANY_FINITE, Dtype, TextEnum, Tolerance
from menagerie.typed_json import plain


@dataclass(frozen=True)
class ErrorHistogram:
    """The number of finite elements by their error |out - ref|, in half decades.

    `exact` elements are equal; `counts[i]` lie in [10^((first+i)/2), 10^((first+i+1)/2)), in the
    output's own units.
    """

    exact: int
    first: int
    counts: tuple[int, ...]


class Bound(TextEnum):
    """The bound by which an output passed; see `menagerie.numerics.Tolerance`."""

    BITS = "bits"  # all are equal to eager's
    ABSOLUTE = "absolute"
    SNR = "snr"


@dataclass(frozen=True, kw_only=True)
class OutputParity:
    """The comparison of one output of one golden case with eager's.

    `snr_db` is 20 log10(|ref|2 / |ref - out|2), infinite if both are bit-equal; `max_rel` is
    max(|a-b| / max(|ref|)), so that zeros in the reference do not make it meaningless. `scale` is
    the largest finite |ref|, which scales `tolerance`. Reports of older versions have
    neither `scale` nor `passed_by`.
    """

    case: int
    output: str
    dtype: Dtype
    shape: tuple[int, ...]
    max_abs: float
    max_rel: float
    snr_db: float
    cosine: float
    nonfinite_match: bool
    tolerance: Tolerance | None
    passed: bool
    passed_by: Bound | None = None
    scale: float | None = None
    fact: str = ""  # what is wrong if it did not pass
    errors: ErrorHistogram | None = None

    @property
    def allowed(self) -> float | None:
        """The largest error that passes at any SNR; None if every bit must equal eager's.

        It is also None if accuracy decides instead of the error.
        """
        if self.tolerance is None or self.tolerance == ANY_FINITE:
            return None
        return self.tolerance.everywhere(1.0 if self.scale is None else self.scale)


@dataclass(frozen=True, kw_only=True)
class Exactness:
    """SNRs in dB of eager in float32 and of the artifact, against float64 in the first case."""

    output: str
    eager_snr_db: float
    artifact_snr_db: float


class CaseKind(TextEnum):
    """The kind of a golden case's inputs."""

    NOISE = "noise"  # every element drawn independently
    PICTURE = "picture"  # synthetic, with the statistics of photographs
    SPEECH = "speech"  # synthetic, with voice and pauses
    SAMPLE = "sample"  # real inputs of the entry's gate or calibration
    GIVEN = "given"  # given by the caller of the conversion
    REDRAWN = "redrawn"  # of other sizes, with elements of the given inputs


@dataclass(frozen=True, kw_only=True)
class CaseShape:
    """The sizes of the dynamic dimensions in one golden case, and the kind of its inputs.

    Bundles of older versions do not name the kind.
    """

    case: int
    dimensions: dict[str, int]
    kind: CaseKind | None = None


_UNTRIED = ": a call takes eager too long, or its process ended"
_WAITING = 1.15  # wall time over processor time, above which calls waited for a core


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Repeated timings in milliseconds.

    `processor_ms` is the mean processor time of a call over all threads; unlike wall time it
    excludes waiting for a core, so figures of one thread are comparable even on a busy machine.
    """

    minimum_ms: float
    median_ms: float
    p90_ms: float
    runs: int
    threads: int
    case: int | None = None  # the golden case whose inputs were timed
    processor_ms: float | None = None
    load: float | None = None  # runnable processes per core in the last minute

    @property
    def busy(self) -> str:
        """A note on a figure that other work on the machine worsened; otherwise empty."""
        if self.threads == 1 and self.processor_ms:
            waited = self.median_ms > _WAITING * self.processor_ms
            return "busy machine, calls waited for a core" if waited else ""
        crowded = self.load is not None and self.load > 1
        return f"busy machine, load {self.load:.1f} by core" if crowded else ""


@dataclass(frozen=True, kw_only=True)
class KernelTime:
    """All calls of one kernel."""

    kernel: str  # a generated kernel's name, or a fallback kernel's with its operands' sizes
    calls: int  # number of calls
    milliseconds: float  # wall time of all calls
    # Of products, convolutions and attention; a multiply-add counts as two
    flops: float
    bytes: float  # of operands and results, counted once per call


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """A machine's peaks per second: FLOPs in float32, and bytes read and written."""

    flops: float
    bytes: float


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The time of a program's runs, by kernel."""

    threads: int  # threads of a run
    runs: int  # number of timed runs
    milliseconds: float  # mean wall time of a run
    peaks: Peaks  # of this machine with this number of threads
    kernels: tuple[KernelTime, ...]  # sums over all runs, longest first

    def share(self, kernel: KernelTime) -> float:
        """Return a kernel's share of the runs' time, 0 to 1."""
        return kernel.milliseconds / (self.milliseconds * self.runs)

    def of_roofline(self, kernel: KernelTime) -> float:
        """Return the least time that the machine's peaks allow, divided by the time taken.

        The roofline is that of Williams et al. (2009), doi:10.1145/1498765.1498785. The value
        exceeds 1 if operands in a cache arrive faster than the peak of memory allows.
        """
        least = max(kernel.flops / self.peaks.flops, kernel.bytes / self.peaks.bytes)
        return least * 1e3 / kernel.milliseconds if kernel.milliseconds else 0.0


@dataclass(frozen=True, kw_only=True)
class Refutation:
    """One attempt to refute a program (`menagerie.validation.refuting`)."""

    attempt: str  # its name, e.g. `one NaN`
    fact: str = ""  # how the result differs from eager's; empty: not at all
    excuse: str = ""  # why the difference is only reported; empty: it refutes the program


@dataclass(frozen=True, kw_only=True)
class Refuting:
    """All attempts to refute a program."""

    tried: tuple[Refutation, ...]  # the attempts for which there was time
    planned: int  # number of attempts in the bundle
    seconds: float  # time that the attempts took
    # Outputs that are the same for all inputs: their comparison proves nothing
    constant: tuple[str, ...] = ()
    share: float = 0.0  # of the proof's time so far, 0 to 1

    @property
    def summary(self) -> str:
        """One line, as `12 of 12 attempts to refute it failed, in 0.06 s (2.0 % of the proof)`."""
        agreed = sum(not attempt.fact for attempt in self.tried)
        more = self.planned - len(self.tried)
        left = f", {more} more were left out to save time" if more else ""
        return (
            f"{agreed} of {count(len(self.tried), 'attempt')} to refute it failed{left}, "
            f"in {seconds(self.seconds)} ({percent(self.share)} of the proof)"
        )


def _sizes(dimensions: Mapping[str, int]) -> str:
    named = ", ".join(f"{name}={size}" for name, size in dimensions.items())
    return f" ({named})" if named else ""


@dataclass(frozen=True, kw_only=True)
class ProgramValidation:
    """One program's golden cases, determinism and speed in the fresh process."""

    program: str
    cases: tuple[CaseShape, ...]
    parity: tuple[OutputParity, ...]
    deterministic: bool
    latency: Measurement | None
    passed: bool
    exactness: tuple[Exactness, ...] = ()  # of outputs with float64 values in the bundle
    profile: Profile | None = None  # on a CPU; a GPU's kernels outlast their call
    refuting: Refuting | None = None  # None: bundles of older versions have no attempts

    @property
    def wrong_cases(self) -> list[int]:
        """Golden cases that differ from eager, and refuting attempts, numbered after all cases."""
        tried = self.refuting.tried if self.refuting else ()
        cases = {each.case for each in self.parity if not each.passed}
        refuted = (n for n, t in enumerate(tried, len(self.cases)) if t.fact and not t.excuse)
        return [*sorted(cases), *refuted]

    @property
    def doubts(self) -> tuple[str, ...]:
        """Caveats for readers of a passed proof, one sentence each."""
        found = self.refuting or Refuting(tried=(), planned=0, seconds=0.0)
        untried = [f"nothing was tried to refute it{_UNTRIED}"] * (self.refuting is None)
        run = {each.case for each in self.parity}
        left = (
            f"case {c.case}{_sizes(c.dimensions)} was not emulated, since that would exceed the "
            "time limit: it is to be confirmed on a device"
            for c in self.cases
            if c.case not in run
        )
        same = (
            f"output {n} is the same for all inputs: this proves nothing" for n in found.constant
        )
        excused = (
            f"{t.attempt}: {t.fact}. Reported alone: {t.excuse}" for t in found.tried if t.excuse
        )
        facts = (*untried, *left, *same, *excused)
        return tuple(f"program {self.program}, {fact}" for fact in facts)


@dataclass(frozen=True, kw_only=True)
class AccuracyResult:
    """Accuracy of eager and of the artifact on the gate's samples, as fractions."""

    samples: int
    eager: float
    artifact: float
    slack: int = 0  # samples
    judges: bool = False  # accuracy replaces tolerances: exceeding eager is then no fault

    @property
    def passed(self) -> bool:
        """Whether the artifact is as accurate as eager, within the allowed number of samples."""
        return _lost(round((self.eager - self.artifact) * self.samples), self) <= self.slack


@dataclass(frozen=True, kw_only=True)
class WordErrors:
    """The words that a head got wrong on the gate's recordings, in eager and in the artifact."""

    head: str
    words: int  # spoken in the recordings
    eager: int
    artifact: int
    most: float  # the error rate must be below it
    slack: int = 0  # words
    judges: bool = False  # as in `AccuracyResult`

    @property
    def rate(self) -> float:
        """Errors per word; 0 is perfect."""
        return self.artifact / max(self.words, 1)

    @property
    def passed(self) -> bool:
        """Whether errors are within the slack of eager's and their rate is low enough."""
        lost = _lost(self.artifact - self.eager, self)
        return lost <= self.slack and self.rate < self.most


def _lost(fewer: int, gate: AccuracyResult | WordErrors) -> int:
    return fewer if gate.judges else abs(fewer)


class Verdict(TextEnum):
    """How a validation ended."""

    PASSED = "passed"
    DIVERGED = "diverged"  # an output was out of tolerance
    REFUSED = "refused"  # the runtime raised an error
    CRASHED = "crashed"  # a signal ended the process
    TIMED_OUT = "timed_out"


@dataclass(frozen=True, kw_only=True)
class ValidationReport:
    """The verdict on a whole bundle, reached in a fresh process without torch."""

    verdict: Verdict
    detail: str  # empty when passed; else the first fact, e.g. "killed by SIGSEGV in program main"
    programs: tuple[ProgramValidation, ...]
    accuracy: AccuracyResult | None = None
    word_errors: tuple[WordErrors, ...] = ()
    not_counted: str = ""  # why there are no word errors, though the bundle has recordings
    load_ms: float | None = None
    peak_memory_bytes: int | None = None  # peak resident memory of the fresh process
    second_model_coexists: bool | None = None  # whether a second session gave the same bits
    machine: str = ""
    runtime: str = ""  # version of the shim runtime and its kernel library
    sandbox: str = ""  # the sandbox's name; see menagerie.validation.sandbox
    emulated: bool = False  # run on an emulated device, whose speed is not the real one's

    @property
    def passed(self) -> bool:
        """Whether this bundle may be published."""
        return self.verdict is Verdict.PASSED

    @property
    def doubts(self) -> tuple[str, ...]:
        """The doubts of all programs; see `ProgramValidation.doubts`."""
        doubts = tuple(doubt for program in self.programs for doubt in program.doubts)
        return (*doubts, self.not_counted) if self.not_counted else doubts

    @property
    def worst_snr_db(self) -> float:
        """The lowest signal-to-noise ratio of any output of any case, in decibels."""
        return min((o.snr_db for p in self.programs for o in p.parity), default=float("inf"))


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a validation on the machine. Raises ValueError if one is impossible."""

    seconds: float = 900.0  # wall time of the whole validation
    memory_bytes: int | None = None  # private memory; None: all of the machine's
    threads: int | None = None  # None: one per core
    # Time spent on measuring each program's latency; 0: none. On an emulated device it is never
    # measured.
    measure_seconds: float = 2.0

    def __post_init__(self) -> None:
        bounds = (self.seconds, self.memory_bytes, self.threads)
        if any(bound is not None and bound <= 0 for bound in bounds) or self.measure_seconds < 0:
            raise ValueError(f"a limit is greater than 0: {self}")


@dataclass(frozen=True, kw_only=True)
class Order:
    """The request to the worker."""

    bundle: str  # its folder, absolute
    pipe: int  # file descriptor for the events
    limits: Limits  # of the whole trial
    allow_unsigned: bool  # also try a bundle that no trusted key has signed
    began: float  # when the trial was requested, in seconds since 1970


@dataclass(frozen=True, kw_only=True)
class Event:
    """A message from the worker, with exactly one of these fields."""

    step: str | None = None  # the next step, e.g. `program main, case 1`
    finding: ProgramValidation | None = None  # a program's golden cases have been judged
    outcome: ValidationReport | None = None  # the report, in the last event


class Sender:
    """The worker's end of the pipe; each event reaches the caller before the worker continues."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)  # processes that the artifact spawns do not get it
        self._descriptor = descriptor
        self.place = ""
        self.findings: list[ProgramValidation] = []

    def step(self, place: str) -> None:
        """Announce the next step."""
        self.place = place
        self._send(Event(step=place))

    def finding(self, program: ProgramValidation) -> None:
        """Report one program's judgement."""
        self.findings.append(program)
        self._send(Event(finding=program))

    def outcome(self, report: ValidationReport) -> None:
        """Report the verdict on the whole bundle."""
        self._send(Event(outcome=report))

    def _send(self, event: Event) -> None:
        data = json.dumps(plain(event, sparse=True), allow_nan=False).encode() + b"\n"
        while data:
            data = data[os.write(self._descriptor, data) :]
