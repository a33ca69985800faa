"""The report as Markdown: short enough to be read on a flow run's page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from menagerie.figures import (
    count,
    decibels,
    error,
    milliseconds,
    seconds,
    size,
    speed,
)
from menagerie.validation.findings import Bound
from zoo.report.phrases import EMULATED, cause, demand, heading, proof, tiles
from zoo.report.summary import latencies, parities

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from menagerie.validation.findings import OutputParity
    from zoo.records import ConversionReport, FailureReport

# The last two are links by themselves in GitHub's Markdown: addresses of mail, and `www.`
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&:@]|(?<=www)\.)", re.IGNORECASE)
_MOST_OUTPUTS = 12
_MOST_LAYERS = 5  # of a program


def plain_text(content: str) -> str:
    """A text in which nothing is Markdown or HTML, on one line.

    For places within a line: what makes lists or titles at the start of one is not escaped.
    """
    return _SPECIAL.sub(r"\\\1", " ".join(content.split()))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def _parity(report: ConversionReport) -> list[str]:
    """The worst outputs, failed ones first."""
    found = sorted(parities(report), key=lambda p: (p[1].passed, -p[1].max_abs))
    if not found:
        return []
    kinds = {
        (program.program, case.case): f", {case.kind.value}"
        for program in report.validation.programs
        for case in program.cases
        if case.kind is not None
    }
    rows = [
        (
            plain_text(f"{program} · {p.output}"),
            f"{p.case}{kinds.get((program, p.case), '')}",
            error(p.max_abs),
            decibels(p.snr_db),
            demand(p),
            _result(p),
        )
        for program, p in found[:_MOST_OUTPUTS]
    ]
    more = len(found) - len(rows)
    note = [f"… and {more} more, none of them worse.", ""] if more else []
    head = ("output", "case", "max abs error", "SNR", "tolerance", "result")
    return ["### Parity with eager", "", *_table(head, rows), *note]


def _result(parity: OutputParity) -> str:
    if not parity.passed:
        return "**failed**"
    return "passed by SNR" if parity.passed_by is Bound.SNR else "passed"


def _diagnosis(report: ConversionReport) -> list[str]:
    diagnosis = report.diagnosis
    if diagnosis is None:
        return []
    lines = ["### Cause", "", f"{plain_text(cause(diagnosis))}.", ""]
    found = diagnosis.divergence
    if found is not None and found.command:
        command = " ".join(found.command.split())  # one line, so that nothing leaves the block
        lines += ["The smallest program that shows it:", "", f"    {command}", ""]
    return lines


def _latency(report: ConversionReport) -> list[str]:
    rows = [
        (
            plain_text(program),
            who,
            milliseconds(measured.minimum_ms),
            milliseconds(measured.median_ms),
            "" if measured.processor_ms is None else milliseconds(measured.processor_ms),
            str(measured.threads),
            against,
        )
        for t in latencies(report)
        if t.artifact is not None
        for program, who, measured, against in (
            (t.program, "artifact", t.artifact, speed(t.ratio)),
            ("", "eager", t.eager, ""),
        )
        if measured is not None
    ]
    head = ("program", "run by", "minimum", "median", "processor time", "threads", "against eager")
    return ["### Latency", "", *_table(head, rows)] if rows else []


def _passes(report: ConversionReport) -> list[str]:
    rows = [
        (
            plain_text(log.program),
            plain_text(record.name),
            f"{record.nodes_before} → {record.nodes_after}",
            count(len(record.changes), "change"),
            count(len(record.refusals), "refusal"),
        )
        for log in report.passes
        for record in log.records
    ]
    head = ("program", "pass", "nodes", "", "")
    return ["### Passes", "", *_table(head, rows)] if rows else []


def _rounding(report: ConversionReport) -> list[str]:
    """The layers whose rounding costs most."""
    rows = [
        (
            plain_text(f"{log.program} · {cost.parameter}"),
            decibels(cost.result_snr_db),
            "" if cost.output_snr_db is None else decibels(cost.output_snr_db),
        )
        for log in report.passes
        for cost in log.rounding[:_MOST_LAYERS]
    ]
    head = ("weights rounded alone", "SNR of the layer's result", "SNR of the outputs")
    return ["### What rounding costs most", "", *_table(head, rows)] if rows else []


def _kernels(report: ConversionReport) -> list[str]:
    rows = [
        (
            plain_text(record.program),
            str(record.generated_kernels),
            plain_text(", ".join(record.fallback_kernels)) or "none",
            size(record.library_bytes),
        )
        for record in report.lowering
    ]
    head = ("program", "generated kernels", "kernels of the runtime", "library")
    return ["### Kernels", "", *_table(head, rows)] if rows else []


def markdown(report: ConversionReport) -> str:
    """Renders a report for a Prefect artifact or a pull request.

    Args:
        report: of one conversion, passed or failed.

    Returns:
        Markdown in which no name of the report can become markup.
    """
    ending = heading(report).lower()
    sign = "✅" if report.validation.passed else "❌"
    lines = [
        f"## {sign} {plain_text(report.model)} on {plain_text(report.target)}: {ending}",
        "",
        plain_text(proof(report)),
        "",
    ]
    if report.validation.emulated:
        lines += [f"> **Emulated.** {EMULATED}", ""]
    if report.random_weights is not None:
        lines += [f"> **Random weights**, seed {report.random_weights}: for testing only.", ""]
    lines += _table(
        ("", "", ""), [(f"**{t.label}**", t.value, plain_text(t.note)) for t in tiles(report)]
    )
    lines += _diagnosis(report) + _parity(report)
    if not report.validation.emulated:
        lines += _latency(report)
    lines += _passes(report) + _rounding(report) + _kernels(report)
    if report.stages:
        stages = ", ".join(f"{plain_text(s.stage)} {seconds(s.seconds)}" for s in report.stages)
        lines += ["### Stages", "", stages, ""]
    lines += [f"Build key {plain_text(report.build_key)}, licence {plain_text(report.licence)}."]
    return "\n".join(lines) + "\n"


_LOG_LINES = 60
_LINE_CHARACTERS = 300


def failure_advice(report: FailureReport) -> str:
    """What to do; where the error itself does not say so, where to look."""
    if report.next_step:
        return report.next_step
    where = "Read the log's end below. " if report.log else ""
    return f"{where}`zoo convert {report.model} --target {report.target} --local` tries it alone"


def log_end(text: str) -> str:
    """The last lines of a log as a page can show them: no control characters, none too long."""
    lines = [line for line in text.replace("\r", "\n").split("\n") if line.strip()]
    shown = ("".join(c if c.isprintable() else " " for c in line) for line in lines[-_LOG_LINES:])
    return "\n".join(line.rstrip()[:_LINE_CHARACTERS] for line in shown)


def failure_markdown(report: FailureReport) -> str:
    """Renders a failure for a Prefect artifact; no text of the report can become markup."""
    how = f"{plain_text(report.outcome)} in {plain_text(report.stage)}"
    lines = [
        f"## ❌ {plain_text(report.model)} on {plain_text(report.target)}: {how}",
        "",
        "| | |",
        "|---|---|",
        f"| **stage** | {plain_text(report.stage)} |",
        f"| **node** | {plain_text(report.place)} |",
        f"| **reason** | {plain_text(report.fact)} |",
        f"| **what to do** | {plain_text(failure_advice(report))} |",
    ]
    if report.stages:
        done = ", ".join(f"{plain_text(s.stage)} {seconds(s.seconds)}" for s in report.stages)
        lines.append(f"| **before it** | {done} |")
    lines.append("")
    if report.log:
        lines += ["### The end of the log", ""]
        lines += [f"    {line}" for line in report.log.split("\n")]  # a text, whatever it holds
        whole = f"{plain_text(report.log_path)} on {plain_text(report.machine)}"
        lines += ["", f"The whole log is {whole}."]
    if report.build_key is not None:
        lines += ["", f"Build key {plain_text(report.build_key)}."]
    return "\n".join(lines) + "\n"
