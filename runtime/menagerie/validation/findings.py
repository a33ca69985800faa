"""The findings of a validation: frozen records, in reports and as JSON lines in the worker's pipe.

The stream of events makes a crash attributable: its last step tells where the worker died, and
its findings tell what had been proven by then.
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

    BITS = "bits"  # every one is eager's
    ABSOLUTE = "absolute"
    SNR = "snr"


@dataclass(frozen=True, kw_only=True)
class OutputParity:
    """The comparison of one output of one golden case with eager's.

    `snr_db` is 20 log10(|ref|2 / |ref - out|2), infinite where both are bit-equal; `max_rel` is
    max(|a-b| / max(|ref|)), so that zeros in the reference do not make it meaningless. `scale` is
    the largest finite |ref|, by which `tolerance` is measured. Reports of older versions have
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
    fact: str = ""  # what is wrong, when not passed
    errors: ErrorHistogram | None = None

    @property
    def allowed(self) -> float | None:
        """The largest error that passes at any SNR; None where every bit must equal eager's.

        Also None where accuracy judges instead of the error.
        """
        if self.tolerance is None or self.tolerance == ANY_FINITE:
            return None
        return self.tolerance.everywhere(1.0 if self.scale is None else self.scale)


@dataclass(frozen=True, kw_only=True)
class Exactness:
    """SNR in dB of eager in float32, and of the artifact, against float64 in the first case."""

    output: str
    eager_snr_db: float
    artifact_snr_db: float


class CaseKind(TextEnum):
    """The kind of a golden case's inputs."""

    NOISE = "noise"  # every element drawn by itself
    PICTURE = "picture"  # made with the statistics of photographs
    SPEECH = "speech"  # made of voice and pauses
    SAMPLE = "sample"  # real ones of the entry: of its gate, or its calibration
    GIVEN = "given"  # by who converted
    REDRAWN = "redrawn"  # of other sizes, from the given ones' elements


@dataclass(frozen=True, kw_only=True)
class CaseShape:
    """The sizes of the dynamic dimensions in one golden case, and the kind of its inputs.

    Bundles of older versions do not name the kind.
    """

    case: int
    dimensions: dict[str, int]
    kind: CaseKind | None = None


_UNTRIED = ": a call takes eager too long, or its process ended"
_WAITING = 1.15  # wall time by processor time, from which calls waited for a core


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Repeated timings in milliseconds.

    `processor_ms` is the mean time that the process's threads computed in a call; unlike wall time
    it leaves out waiting for a core, so one-thread figures compare even on a busy machine.
    """

    minimum_ms: float
    median_ms: float
    p90_ms: float
    runs: int
    threads: int
    case: int | None = None  # the golden case whose inputs were timed
    processor_ms: float | None = None
    load: float | None = None  # processes that wanted a core in the last minute, by core

    @property
    def busy(self) -> str:
        """A note beside a figure that other work on the machine made worse; else empty."""
        if self.threads == 1 and self.processor_ms:
            waited = self.median_ms > _WAITING * self.processor_ms
            return "busy machine, calls waited for a core" if waited else ""
        crowded = self.load is not None and self.load > 1
        return f"busy machine, load {self.load:.1f} by core" if crowded else ""


@dataclass(frozen=True, kw_only=True)
class KernelTime:
    """All calls of one kernel."""

    kernel: str  # a generated kernel's name, or a fallback kernel's with its operands' sizes
    calls: int  # how many
    milliseconds: float  # of all together, by the wall's clock
    # Of products, convolutions and attention; a multiplication and an addition are two
    flops: float
    bytes: float  # of operands and results, each once a call


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """A machine's peaks per second: FLOPs in float32, and bytes read and written."""

    flops: float
    bytes: float


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The time of a program's runs, by kernel."""

    threads: int  # how many a run used
    runs: int  # how many were timed
    milliseconds: float  # a run's mean, by the wall's clock
    peaks: Peaks  # of this machine with as many threads
    kernels: tuple[KernelTime, ...]  # sums over all runs, the longest first

    def share(self, kernel: KernelTime) -> float:
        """Return a kernel's share of the runs' time, 0 to 1."""
        return kernel.milliseconds / (self.milliseconds * self.runs)

    def of_roofline(self, kernel: KernelTime) -> float:
        """Return the least time that the machine's peaks allow, by the time taken.

        The roofline is that of Williams et al. (2009), doi:10.1145/1498765.1498785. Operands in a
        cache arrive faster than the peak of memory allows: then the value is above 1.
        """
        least = max(kernel.flops / self.peaks.flops, kernel.bytes / self.peaks.bytes)
        return least * 1e3 / kernel.milliseconds if kernel.milliseconds else 0.0


@dataclass(frozen=True, kw_only=True)
class Refutation:
    """One attempt to refute a program (`menagerie.validation.refuting`)."""

    attempt: str  # what it was, e.g. `one NaN`
    fact: str = ""  # what differs from eager; empty: nothing
    excuse: str = ""  # why that is only reported; empty: the program is refuted


@dataclass(frozen=True, kw_only=True)
class Refuting:
    """All attempts to refute a program."""

    tried: tuple[Refutation, ...]  # those that there was time for
    planned: int  # how many the bundle has
    seconds: float  # that they took
    # Outputs that are the same for all inputs: their comparison proves nothing
    constant: tuple[str, ...] = ()
    share: float = 0.0  # of the time of the whole proof until then, 0 to 1

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
    exactness: tuple[Exactness, ...] = ()  # of outputs whose truth in float64 the bundle has
    profile: Profile | None = None  # on a processor; a GPU's kernels run on after their call
    refuting: Refuting | None = None  # bundles of older versions have no attempts

    @property
    def wrong_cases(self) -> list[int]:
        """Golden cases that differ from eager; after their numbers, attempts that refute it."""
        tried = self.refuting.tried if self.refuting else ()
        cases = {each.case for each in self.parity if not each.passed}
        refuted = (n for n, t in enumerate(tried, len(self.cases)) if t.fact and not t.excuse)
        return [*sorted(cases), *refuted]

    @property
    def doubts(self) -> tuple[str, ...]:
        """What the reader of a passed proof must know, one sentence each."""
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
    judges: bool = False  # in place of tolerances: to be better than eager is no fault then

    @property
    def passed(self) -> bool:
        """Whether the artifact is as accurate as eager, but for the allowed number of samples."""
        return _lost(round((self.eager - self.artifact) * self.samples), self) <= self.slack


@dataclass(frozen=True, kw_only=True)
class WordErrors:
    """The words that a head got wrong on the gate's recordings, in eager and in the artifact."""

    head: str
    words: int  # that are said
    eager: int
    artifact: int
    most: float  # the highest rate that passes
    slack: int = 0  # words
    judges: bool = False  # as of `AccuracyResult`

    @property
    def rate(self) -> float:
        """Errors per word; 0 is perfect."""
        return self.artifact / max(self.words, 1)

    @property
    def passed(self) -> bool:
        """Whether the artifact errs no more than eager plus the slack, and seldom enough."""
        lost = _lost(self.artifact - self.eager, self)
        return lost <= self.slack and self.rate < self.most


def _lost(fewer: int, gate: AccuracyResult | WordErrors) -> int:
    return fewer if gate.judges else abs(fewer)


class Verdict(TextEnum):
    """How a validation ended."""

    PASSED = "passed"
    DIVERGED = "diverged"  # a number was out of tolerance
    REFUSED = "refused"  # the runtime raised an error
    CRASHED = "crashed"  # a signal ended the process
    TIMED_OUT = "timed_out"


@dataclass(frozen=True, kw_only=True)
class ValidationReport:
    """The judgement over a whole bundle, made in a fresh process without torch."""

    verdict: Verdict
    detail: str  # empty when passed; else the first fact, e.g. "killed by SIGSEGV in program main"
    programs: tuple[ProgramValidation, ...]
    accuracy: AccuracyResult | None = None
    word_errors: tuple[WordErrors, ...] = ()
    not_counted: str = ""  # why there are no word errors, though the bundle has recordings
    load_ms: float | None = None
    peak_memory_bytes: int | None = None  # most that was resident in the fresh process
    second_model_coexists: bool | None = None  # a second session beside it gave the same bits
    machine: str = ""
    runtime: str = ""  # version of the shim runtime and its kernel library
    sandbox: str = ""  # what contained the artifact's code; see menagerie.validation.sandbox
    emulated: bool = False  # run on an emulated device: no word on the real one's speed

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
    """The limits of a validation on the machine; ValueError for an impossible one."""

    seconds: float = 900.0  # wall time of the whole validation
    memory_bytes: int | None = None  # private memory; None: the machine's
    threads: int | None = None  # None: one a core
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
    allow_unsigned: bool  # also try what no trusted key has signed
    began: float  # when the trial was asked for, in seconds since 1970


@dataclass(frozen=True, kw_only=True)
class Event:
    """A message from the worker: it has one of these fields."""

    step: str | None = None  # what it is about to do, e.g. `program main, case 1`
    finding: ProgramValidation | None = None  # a program's golden cases have been judged
    outcome: ValidationReport | None = None  # it is done; the last event


class Sender:
    """The worker's end of the pipe; each event reaches the caller before the worker goes on."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)  # what the artifact may spawn has no part in it
        self._descriptor = descriptor
        self.place = ""
        self.findings: list[ProgramValidation] = []

    def step(self, place: str) -> None:
        """Announce what is done next."""
        self.place = place
        self._send(Event(step=place))

    def finding(self, program: ProgramValidation) -> None:
        """Report one program's judgement."""
        self.findings.append(program)
        self._send(Event(finding=program))

    def outcome(self, report: ValidationReport) -> None:
        """Report the whole judgement."""
        self._send(Event(outcome=report))

    def _send(self, event: Event) -> None:
        data = json.dumps(plain(event, sparse=True), allow_nan=False).encode() + b"\n"
        while data:
            data = data[os.write(self._descriptor, data) :]
