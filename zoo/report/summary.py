"""A report's summary: a conversion in one row, and sentences that depend on its outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from menagerie.figures import (
    count,
    decibels,
    error,
    milliseconds,
    percent,
    scientific,
    seconds,
    size,
    speed,
    thousands,
)
from menagerie.validation.findings import (
    AccuracyResult,
    Exactness,
    Measurement,
    OutputParity,
    Verdict,
    WordErrors,
)
from zoo.base_models import Frozen
from zoo.records import ConversionReport, Diagnosis, DivergenceStage

_A_BIT = 6.02  # dB: the order of summation alone can cost a bit of the mantissa

_HEADINGS = {
    Verdict.PASSED: "Proven equal to eager",
    Verdict.DIVERGED: "Diverges from eager",
    Verdict.REFUSED: "Refused by the runtime",
    Verdict.CRASHED: "Crashed while it was tried",
    Verdict.TIMED_OUT: "Not done in time",
}

EMULATED = (
    "It ran on an emulated device: the shaders that a GPU will run, on this machine's processor, "
    "every access to memory checked. No real device has run it yet, and it has not been timed: an "
    "emulation says nothing of a device's speed."
)


@dataclass(frozen=True)
class OutputCases:
    """One output over all its golden cases, with one parity per case."""

    program: str  # that has the output
    name: str  # the output's, after the program's if there are several
    cases: tuple[OutputParity, ...]

    @property
    def worst(self) -> OutputParity:
        """The case that failed, or else the one with the largest error."""
        return max(self.cases, key=badness)

    @property
    def allowed(self) -> float | None:
        """The strictest tolerance of its cases."""
        return min((p.allowed for p in self.cases if p.allowed is not None), default=None)


@dataclass(frozen=True)
class Latencies:
    """One program's latencies; None if they were not measured."""

    program: str
    artifact: Measurement | None  # from the validation
    eager: Measurement | None  # measured in turns with it
    same_inputs: bool  # whether both were timed on inputs of one shape

    @property
    def comparison(self) -> tuple[float, float] | None:
        """Eager's and the artifact's milliseconds, like for like; None if they do not compare.

        With one thread it is processor time, which other work on the machine hardly disturbs.
        With several it is the median wall time, since waiting threads use processor time too.
        """
        eager, artifact = self.eager, self.artifact
        if eager is None or artifact is None or not self.same_inputs:
            return None
        if eager.threads != artifact.threads:
            return None
        if eager.threads == 1 and eager.processor_ms and artifact.processor_ms:
            return eager.processor_ms, artifact.processor_ms
        return eager.median_ms, artifact.median_ms

    @property
    def ratio(self) -> float | None:
        """The artifact's time over eager's; None if they do not compare."""
        pair = self.comparison
        return pair[1] / pair[0] if pair is not None and pair[0] > 0 else None

    @property
    def busy(self) -> str:
        """A note on the machine, if other work disturbed either measurement."""
        return next((m.busy for m in (self.artifact, self.eager) if m and m.busy), "")


class Summary(Frozen):
    """The figures of one conversion, for views of several: tables, the catalogue, a diff."""

    worst_abs: float | None = None  # of any output in any case; None without outputs
    worst_snr_db: float | None = None  # infinite when all are bit-equal; None without outputs
    accuracy: float | None = None  # of the gate; for speech, one minus the word error rate
    accuracy_judged: bool = False  # instead of the SNR, for low precisions
    # Sums of the programs' medians, and their ratio, like for like (`Latencies.comparison`); below
    # 1 the artifact is faster. None if emulated, or if a program has no latencies.
    artifact_ms: float | None = None
    eager_ms: float | None = None
    ratio: float | None = None
    bytes: int = 0  # of weights and libraries
    memory_bytes: int | None = None  # peak resident memory of the process that proved it
    seconds: float = 0.0  # of the whole conversion
    machine: str = ""  # that proved it
    busy: str = ""  # a note on other work that disturbed the latencies
    doubts: tuple[str, ...] = ()  # caveats on the proof, one sentence each


def parities(report: ConversionReport) -> Iterator[tuple[str, OutputParity]]:
    """Yield every output of every case, with its program's name."""
    for program in report.validation.programs:
        for parity in program.parity:
            yield program.program, parity


def badness(parity: OutputParity) -> tuple[bool, float]:
    """Return the sort key of parities: failed ones first, then by their largest error."""
    return not parity.passed, parity.max_abs


def outputs(report: ConversionReport) -> tuple[OutputCases, ...]:
    """Return every output with all its cases, in program order."""
    grouped: dict[tuple[str, str], list[OutputParity]] = {}
    for program, parity in parities(report):
        grouped.setdefault((program, parity.output), []).append(parity)
    several = len(report.validation.programs) > 1
    return tuple(
        OutputCases(program, f"{program} · {output}" if several else output, tuple(cases))
        for (program, output), cases in grouped.items()
    )


def latencies(report: ConversionReport) -> tuple[Latencies, ...]:
    """Return both latencies of each program, in order, if they are known."""
    measured, found = dict(report.eager_latency), []
    for program in report.validation.programs:
        artifact, eager = program.latency, measured.get(program.program)
        same = artifact is not None and eager is not None and artifact.case == eager.case
        one_shape = not any(case.dimensions for case in program.cases)
        found.append(Latencies(program.program, artifact, eager, same or one_shape))
    return tuple(found)


def summarise(report: ConversionReport) -> Summary:
    """Return the figures of a report."""
    times, validation = latencies(report), report.validation
    ratio, pairs = None, [t.comparison for t in times if t.comparison is not None]
    if pairs and len(pairs) == len(times) and not validation.emulated:
        ratio = sum(artifact for _, artifact in pairs) / sum(eager for eager, _ in pairs)
    accuracies = [1 - each.rate for each in validation.word_errors]
    if validation.accuracy is not None:
        accuracies = [validation.accuracy.artifact]
    return Summary(
        worst_abs=report.worst_abs,
        worst_snr_db=report.worst_snr_db,
        accuracy=min(accuracies, default=None),
        accuracy_judged=_accuracy_judged(report),
        artifact_ms=None if validation.emulated else _total([t.artifact for t in times]),
        eager_ms=_total([t.eager for t in times]),
        ratio=ratio,
        bytes=report.weights_bytes + sum(r.library_bytes for r in report.lowering),
        memory_bytes=validation.peak_memory_bytes,
        seconds=sum(stage.seconds for stage in report.stages),
        machine=validation.machine,
        busy="" if validation.emulated else next((t.busy for t in times if t.busy), ""),
        doubts=validation.doubts,
    )


def _accuracy_judged(report: ConversionReport) -> bool:
    gates = report.validation.accuracy, *report.validation.word_errors
    return any(gate.judges for gate in gates if gate is not None)


def _total(measured: Sequence[Measurement | None]) -> float | None:
    known = [each.median_ms for each in measured if each is not None]
    return sum(known) if known and len(known) == len(measured) else None


@dataclass(frozen=True)
class Tile:
    """One number at the top of the page."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Command:
    """A text to copy, usually a command line, and its purpose."""

    purpose: str
    line: str


def heading(report: ConversionReport) -> str:
    """Return the conversion's outcome in a few words."""
    if report.validation.passed and report.validation.emulated:
        if _accuracy_judged(report):
            return "Emulated: judged by its accuracy on an emulated device"
        return "Emulated: equal to eager on an emulated device"
    if report.validation.passed and _accuracy_judged(report):
        return "Proven by its accuracy"
    return _HEADINGS[report.validation.verdict]


def proof(report: ConversionReport) -> str:
    """Return one sentence on what was proven and how, or on why the proof failed."""
    if not report.validation.passed:
        return report.validation.detail
    outputs = [parity for _, parity in parities(report)]
    cases = [case for program in report.validation.programs for case in program.cases]
    kinds = Counter(case.kind for case in cases if case.kind is not None)
    by = ", finite where eager's are and judged by accuracy" if _accuracy_judged(report) else ""
    counted = ", ".join(f"{number} of {kind.value}" for kind, number in kinds.items())
    return (
        f"{count(len(outputs), 'output tensor')} of {count(len(cases), 'golden case')} "
        f"{f'({counted}) ' if counted else ''}reproduced, "
        f"in a fresh process without PyTorch{by}; what was run again gave the same bits."
    )


def cause(diagnosis: Diagnosis) -> str:
    """Return one sentence on where a wrong result comes from, or why that is unknown."""
    found = diagnosis.divergence
    if found is None:
        return diagnosis.detail
    where = "First diverging node" if found.certain else "Diverging at this node or before it"
    place = ", ".join(t for t in (found.operator, found.module_path, found.source_line) if t)
    blame = "right in eager PyTorch after all passes, wrong when lowered"
    if found.stage is DivergenceStage.PASSES:
        blame = f"made wrong by the pass {found.pass_name}"
    off = f"off by {error(found.max_abs)}, SNR {decibels(found.snr_db)}"
    off = off if found.max_abs else "apart in NaN or infinities alone"
    node = f"{where} of program {diagnosis.program}, case {diagnosis.case}: {found.node}"
    return f"{node} ({place}), {blame}; {off}"


def demand(parity: OutputParity) -> str:
    """Return an output's tolerance in words; see `menagerie.numerics.Tolerance`."""
    tolerance, allowed = parity.tolerance, parity.allowed
    if tolerance is None:
        return "every bit"
    if allowed is None:
        return "finite where eager's is; accuracy judges"
    text = f"≤ {scientific(allowed)}"
    if tolerance.snr_db is None:
        return text
    text += f" or ≥ {tolerance.snr_db:g} dB"
    if parity.scale is None:  # from an older version without this bound
        return text
    return f"{text} and ≤ {scientific(tolerance.outlier(parity.scale))}"


def beside_truth(found: Exactness) -> str:
    """Return a sentence that compares the artifact's exactness with eager's in float32."""
    artifact, eager = decibels(found.artifact_snr_db), decibels(found.eager_snr_db)
    less = found.eager_snr_db - found.artifact_snr_db
    verdict = "as exact as PyTorch" if less <= _A_BIT else f"{less:.0f} dB less than PyTorch"
    return f"{artifact} from float64, eager float32 {eager}: {verdict}"


def tiles(report: ConversionReport) -> Iterator[Tile]:
    """Yield the numbers that a reader looks for first, as far as they are known."""
    row, validation = summarise(report), report.validation
    if row.worst_snr_db is not None and row.worst_abs is not None:
        yield Tile("worst SNR", decibels(row.worst_snr_db), f"max error {error(row.worst_abs)}")
    if validation.accuracy is not None:
        gate = validation.accuracy
        note = f"eager {percent(gate.eager)}, {count(gate.samples, 'sample')}{_judging(gate)}"
        yield Tile("accuracy", percent(gate.artifact), note)
    for words in validation.word_errors:
        note = f"eager {percent(words.eager / max(words.words, 1))}, {count(words.words, 'word')}"
        note += _judging(words)
        yield Tile(f"word errors, {words.head}", percent(words.rate), note)
    if row.artifact_ms is not None:
        note = "; ".join(filter(None, (speed(row.ratio) if row.ratio else "", row.busy)))
        yield Tile("latency", milliseconds(row.artifact_ms), note)
    note = f"{thousands(report.parameters)} parameters"
    yield Tile("weights and code", size(row.bytes), note)
    if row.memory_bytes is not None:
        note = "" if validation.load_ms is None else f"loads in {milliseconds(validation.load_ms)}"
        yield Tile("peak memory", size(row.memory_bytes), note)
    if row.seconds:
        yield Tile("conversion", seconds(row.seconds), count(len(report.stages), "stage"))


def _judging(gate: AccuracyResult | WordErrors) -> str:
    return f"; judges in place of the SNR, {gate.slack} may be lost" if gate.judges else ""


def commands(report: ConversionReport) -> tuple[Command, ...]:
    """Return commands to download, prove, run and rebuild this artifact or examine a failure."""
    model, target = report.model, report.target
    seed = "" if report.random_weights is None else f" --random-weights {report.random_weights}"
    again = Command("Convert it yourself", f"zoo convert {model} --target {target}{seed}")
    if not report.validation.passed:
        found = report.diagnosis.divergence if report.diagnosis is not None else None
        if found is None or not found.command:
            return (again,)
        return (Command("Run a small program that shows the fault", found.command), again)
    without = "Run it, with no PyTorch installed"
    if not report.source:  # made by convert(): it is in no manifest and no store
        return (
            Command("Prove it again (FOLDER holds this page)", "zoo verify FOLDER"),
            Command(without, f"zoo run FOLDER {report.arguments}"),
        )
    on = "" if target == "cpu" else f" --target {target}"
    return (
        Command("Download it", f"zoo pull {model} --target {target} -o {model}"),
        Command("Prove it again on this machine", f"zoo verify {model}{on}"),
        Command(without, f"zoo run {model}{on} {report.arguments}"),
        again,
    )
