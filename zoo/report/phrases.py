"""The sentences of a report that depend on how a conversion ended."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from menagerie.figures import (
    count,
    decibels,
    error,
    milliseconds,
    scientific,
    seconds,
    size,
    speed,
    thousands,
)
from menagerie.validation.findings import Verdict
from zoo.records import DivergenceStage
from zoo.report.summary import parities, summarise

if TYPE_CHECKING:
    from menagerie.validation.findings import Exactness, OutputParity
    from zoo.records import ConversionReport, Diagnosis

_A_BIT = 6.02  # dB: a bit of the mantissa more or less is another order of summing

HEADINGS = {
    Verdict.PASSED: "Proven equal to eager",
    Verdict.DIVERGED: "Diverges from eager",
    Verdict.REFUSED: "Refused by the runtime",
    Verdict.CRASHED: "Crashed while it was tried",
    Verdict.TIMED_OUT: "Not done in time",
}

EMULATED = (
    "It ran on an emulated device: the shaders that a GPU will run, on this machine's processor, "
    "every access to memory checked. No real device has run it yet, and nobody has timed it: an "
    "emulation says nothing of a device's speed."
)


@dataclass(frozen=True)
class Tile:
    """One number at the head of the page."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Command:
    """Something to copy, a command line most often, and what it is for."""

    purpose: str
    line: str


def heading(report: ConversionReport) -> str:
    """How the conversion ended, in a few words."""
    if report.validation.passed and report.validation.emulated:
        return "Emulated: equal to eager on an emulated device"
    return HEADINGS[report.validation.verdict]


def proof(report: ConversionReport) -> str:
    """One sentence that says what was found out, and where it was."""
    if not report.validation.passed:
        return report.validation.detail
    outputs = [parity for _, parity in parities(report)]
    cases = [case for program in report.validation.programs for case in program.cases]
    kinds = Counter(case.kind for case in cases if case.kind is not None)
    told = ", ".join(f"{number} of {kind.value}" for kind, number in kinds.items())
    return (
        f"{count(len(outputs), 'output tensor')} of {count(len(cases), 'golden case')} "
        f"{f'({told}) ' if told else ''}reproduced, "
        "in a fresh process without PyTorch; what was run again gave the same bits."
    )


def cause(diagnosis: Diagnosis) -> str:
    """One sentence that says where a wrong result comes from, or why that is not known."""
    found = diagnosis.divergence
    if found is None:
        return diagnosis.detail
    where = "First diverging node" if found.certain else "Diverging at this node or before it"
    place = ", ".join(t for t in (found.operator, found.module_path, found.source_line) if t)
    blame = "right in eager PyTorch after all passes, wrong when lowered"
    if found.stage is DivergenceStage.PASSES:
        blame = f"made wrong by the pass {found.pass_name}"
    return (
        f"{where} of program {diagnosis.program}, case {diagnosis.case}: {found.node} ({place}), "
        f"{blame}; off by {error(found.max_abs)}, SNR {decibels(found.snr_db)}"
    )


def demand(parity: OutputParity) -> str:
    """What an output must keep to; see `menagerie.numerics.Tolerance`."""
    tolerance, allowed = parity.tolerance, parity.allowed
    if tolerance is None or allowed is None:
        return "every bit"
    text = f"≤ {scientific(allowed)}"
    if tolerance.snr_db is None:
        return text
    text += f" or ≥ {tolerance.snr_db:g} dB"
    if parity.scale is None:  # judged by an older version, without this bound
        return text
    return f"{text} and ≤ {scientific(tolerance.outlier(parity.scale))}"


def beside_truth(found: Exactness) -> str:
    """How exact the artifact is, beside eager PyTorch in float32."""
    artifact, eager = decibels(found.artifact_snr_db), decibels(found.eager_snr_db)
    less = found.eager_snr_db - found.artifact_snr_db
    verdict = "as exact as PyTorch" if less <= _A_BIT else f"{less:.0f} dB less than PyTorch"
    return f"{artifact} from float64, eager float32 {eager}: {verdict}"


def tiles(report: ConversionReport) -> tuple[Tile, ...]:
    """The numbers that a reader looks for first, as far as they are known."""
    row, validation = summarise(report), report.validation
    found: list[Tile] = []
    if row.worst_snr_db is not None and row.worst_abs is not None:
        found.append(
            Tile("worst SNR", decibels(row.worst_snr_db), f"max error {error(row.worst_abs)}")
        )
    if validation.accuracy is not None:
        gate = validation.accuracy
        note = f"eager {gate.eager:.2%}, {count(gate.samples, 'sample')}"
        found.append(Tile("accuracy", f"{gate.artifact:.2%}", note))
    for words in validation.word_errors:
        note = f"eager {words.eager / max(words.words, 1):.2%}, {count(words.words, 'word')}"
        found.append(Tile(f"word errors, {words.head}", f"{words.rate:.2%}", note))
    if row.artifact_ms is not None and not validation.emulated:
        note = "" if row.ratio is None else speed(row.ratio)
        found.append(Tile("latency", milliseconds(row.artifact_ms), note))
    note = f"{thousands(report.parameters)} parameters"
    found.append(Tile("weights and code", size(row.bytes), note))
    if validation.peak_memory_bytes is not None:
        note = "" if validation.load_ms is None else f"loads in {milliseconds(validation.load_ms)}"
        found.append(Tile("peak memory", size(validation.peak_memory_bytes), note))
    if row.seconds:
        found.append(Tile("conversion", seconds(row.seconds), count(len(report.stages), "stage")))
    return tuple(found)


def commands(report: ConversionReport) -> tuple[Command, ...]:
    """How to get, prove again, run and make this artifact; what failed can be looked into."""
    model, target = report.model, report.target
    seed = "" if report.random_weights is None else f" --random-weights {report.random_weights}"
    again = Command("Convert it yourself", f"zoo convert {model} --target {target}{seed}")
    if not report.validation.passed:
        found = report.diagnosis.divergence if report.diagnosis is not None else None
        if found is None or not found.command:
            return (again,)
        return (Command("Run the smallest program that shows the fault", found.command), again)
    on = "" if target == "cpu" else f" --target {target}"
    return (
        Command("Download it", f"zoo pull {model} --target {target} -o {model}"),
        Command("Prove it again on this machine", f"zoo verify {model}{on}"),
        Command(
            "Run it, with no PyTorch installed",
            f"zoo run {model} --input x.npy --output y.npy",
        ),
        again,
    )
