"""A conversion in one row: what tables of several conversions show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from menagerie.validation.findings import Measurement, OutputParity, ProgramValidation, Verdict
    from zoo.records import ConversionReport

_WAITING = 1.15


@dataclass(frozen=True)
class OutputCases:
    """One output over all its golden cases.

    Attributes:
        program: whose output it is.
        name: its own, after the program's where there are several.
        cases: one parity a case.
    """

    program: str
    name: str
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
    """One program's latencies; None where they were not measured.

    Attributes:
        program: its name.
        artifact: as the validation measured it.
        eager: eager PyTorch's, measured in turns with it.
        same_inputs: whether both were timed on inputs of one shape.
    """

    program: str
    artifact: Measurement | None
    eager: Measurement | None
    same_inputs: bool

    @property
    def comparison(self) -> tuple[float, float] | None:
        """Eager's and the artifact's milliseconds, like for like; None where nothing compares.

        With one thread it is processor time, which other work on the machine hardly disturbs;
        with several it is the median of wall time, since threads that wait also compute.
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
        """Artifact over eager; None where nothing compares."""
        pair = self.comparison
        return pair[1] / pair[0] if pair is not None and pair[0] > 0 else None

    @property
    def waited(self) -> bool:
        """Whether one-thread calls waited long for a core: wall times say little then."""
        return any(
            m.threads == 1 and m.processor_ms and m.median_ms > _WAITING * m.processor_ms
            for m in (self.eager, self.artifact)
            if m is not None
        )


@dataclass(frozen=True)
class Summary:
    """The row of one conversion.

    Attributes:
        model: name in the manifest.
        target: where the artifact runs.
        verdict: how its validation ended.
        detail: the first fact against it; empty when it passed.
        random_weights: the seed, when the weights are random.
        worst_abs: largest max abs error of any output in any case; None without outputs.
        worst_snr_db: smallest SNR, infinite when all are bit-equal; None without outputs.
        artifact_ms: sum of the programs' median latencies; None unless all were measured.
        eager_ms: the same of eager PyTorch.
        ratio: artifact over eager, like for like (see `Latencies.comparison`), below 1 when the
            artifact is faster; None unless every program compares.
        bytes: weights and libraries.
        seconds: the whole conversion.
    """

    model: str
    target: str
    verdict: Verdict
    detail: str
    random_weights: int | None
    worst_abs: float | None
    worst_snr_db: float | None
    artifact_ms: float | None
    eager_ms: float | None
    ratio: float | None
    bytes: int
    seconds: float


def parities(report: ConversionReport) -> Iterator[tuple[str, OutputParity]]:
    """Every output of every case, with its program's name."""
    for program in report.validation.programs:
        for parity in program.parity:
            yield program.program, parity


def badness(parity: OutputParity) -> tuple[bool, float]:
    """By what parities are sorted: failed ones above passed ones, then by their largest error."""
    return not parity.passed, parity.max_abs


def outputs(report: ConversionReport) -> tuple[OutputCases, ...]:
    """Every output with all its cases, in the order of the programs."""
    grouped: dict[tuple[str, str], list[OutputParity]] = {}
    for program, parity in parities(report):
        grouped.setdefault((program, parity.output), []).append(parity)
    several = len(report.validation.programs) > 1
    return tuple(
        OutputCases(program, f"{program} · {output}" if several else output, tuple(cases))
        for (program, output), cases in grouped.items()
    )


def latencies(report: ConversionReport) -> tuple[Latencies, ...]:
    """The programs in order, with both latencies as far as they are known."""
    eager = dict(report.eager_latency)
    return tuple(
        Latencies(
            program.program,
            program.latency,
            eager.get(program.program),
            _same_inputs(program, eager.get(program.program)),
        )
        for program in report.validation.programs
    )


def _same_inputs(program: ProgramValidation, eager: Measurement | None) -> bool:
    """All cases of a program without dynamic dimensions have one shape; else they must agree."""
    if eager is None or program.latency is None:
        return False
    dynamic = any(case.dimensions for case in program.cases)
    return not dynamic or eager.case == program.latency.case


def _ratio(times: Sequence[Latencies]) -> float | None:
    pairs = [t.comparison for t in times]
    known = [pair for pair in pairs if pair is not None]
    if not known or len(known) < len(pairs):
        return None
    return sum(artifact for _, artifact in known) / sum(eager for eager, _ in known)


def summarise(report: ConversionReport) -> Summary:
    """Condenses a report to one row."""
    times = latencies(report)
    artifact = [t.artifact.median_ms for t in times if t.artifact is not None]
    eager = [t.eager.median_ms for t in times if t.eager is not None]
    return Summary(
        model=report.model,
        target=report.target,
        verdict=report.validation.verdict,
        detail=report.validation.detail,
        random_weights=report.random_weights,
        worst_abs=report.worst_abs,
        worst_snr_db=report.worst_snr_db,
        artifact_ms=sum(artifact) if times and len(artifact) == len(times) else None,
        eager_ms=sum(eager) if times and len(eager) == len(times) else None,
        ratio=_ratio(times),
        bytes=report.weights_bytes + sum(r.library_bytes for r in report.lowering),
        seconds=sum(stage.seconds for stage in report.stages),
    )
