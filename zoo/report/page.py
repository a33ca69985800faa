"""The HTML pages: templates filled in, style and pictures inside, no script, nothing fetched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from menagerie.profile import kernel_rows
from zoo.report import charts
from zoo.report.graphs import figure
from zoo.report.markdown import failure_advice
from zoo.report.phrases import EMULATED, HEADINGS, cause, commands, heading, proof, tiles
from zoo.report.rendering import render
from zoo.report.summary import badness, latencies, outputs, summarise
from zoo.report.svg import WIDTH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from menagerie.profile import KernelRow
    from zoo.records import ConversionReport, FailureReport, ProgramGraphs
    from zoo.report.summary import OutputCases

__all__ = ["IndexRow", "render_failure", "render_index", "render_report"]

_MOST_HISTOGRAMS = 6
_MOST_KERNELS = 12
_MOST_LAYERS = 12  # that a reader sees unasked
_MOST_GRAPH_ROWS = 600  # of all pictures of graphs together


@dataclass(frozen=True)
class IndexRow:
    """A report and where its page lies, relative to the index; empty when it has none."""

    report: ConversionReport
    link: str


def _histograms(shown: Sequence[OutputCases]) -> list[tuple[OutputCases, Markup]]:
    """The worst outputs' histograms, as many as a reader will look at."""
    inexact = [output for output in shown if output.worst.max_abs > 0]
    inexact.sort(key=lambda output: badness(output.worst), reverse=True)
    width = WIDTH if len(inexact) == 1 else WIDTH / 2
    drawn = [
        (output, charts.error_histogram(output, width=width))
        for output in inexact[:_MOST_HISTOGRAMS]
    ]
    return [(output, drawing) for output, drawing in drawn if drawing]


def _pictures(
    report: ConversionReport, programs: Sequence[ProgramGraphs]
) -> list[tuple[str, Markup]]:
    """Each program's name and picture; the node that diverges is pointed out."""
    diagnosis = report.diagnosis
    drawn = []
    for graphs in programs:
        wrong = None
        if diagnosis is not None and diagnosis.program == graphs.program and diagnosis.divergence:
            wrong = diagnosis.divergence.node
        title = f"Graph of {graphs.program} before and after the passes"
        picture = figure(
            graphs.before,
            graphs.after,
            title=title,
            wrong=wrong,
            most_rows=min(200, _MOST_GRAPH_ROWS // len(programs)),
        )
        drawn.append((graphs.program, picture))
    return drawn


def _profiles(report: ConversionReport) -> list[tuple[str, Markup, list[KernelRow]]]:
    """Each profiled program's name, the picture of its longest kernels, and what they did."""
    found = [(p.program, p.profile) for p in report.validation.programs if p.profile is not None]
    return [
        (
            name,
            charts.kernel_bars(profile, _MOST_KERNELS),
            kernel_rows(profile, _MOST_KERNELS),
        )
        for name, profile in found
    ]


def render_report(report: ConversionReport, graphs: Sequence[ProgramGraphs] = ()) -> str:
    """The page of one conversion, with pictures of its programs' graphs."""
    shown = outputs(report)
    cases = {p.program: {c.case: c for c in p.cases} for p in report.validation.programs}
    parts = [("weights", report.weights_bytes)]
    parts += [(f"library of {r.program}", r.library_bytes) for r in report.lowering]
    return render(
        "report.html.j2",
        report=report,
        heading=heading(report),
        emulated=EMULATED if report.validation.emulated else "",
        proof=proof(report),
        tiles=tiles(report),
        commands=commands(report),
        outputs=shown,
        cases=cases,
        dynamic=any(case.dimensions for shapes in cases.values() for case in shapes.values()),
        times=latencies(report),
        diagnosis=report.diagnosis,
        cause="" if report.diagnosis is None else cause(report.diagnosis),
        rounding=[log for log in report.passes if log.rounding],
        most_layers=_MOST_LAYERS,
        pictures=_pictures(report, graphs),
        stage_bars=charts.stage_bars(report.stages),
        error_dots=charts.error_dots(shown),
        histograms=_histograms(shown),
        latency_bars=("" if report.validation.emulated else charts.latency_bars(latencies(report))),
        profiles=_profiles(report),
        size_bars=charts.size_bars(parts),
    )


def render_failure(report: FailureReport) -> str:
    """The page of a conversion that ended before there was anything to validate."""
    return render(
        "failure.html.j2",
        report=report,
        advice=failure_advice(report),
        stage_bars=charts.stage_bars(report.stages),
    )


def render_index(rows: Sequence[IndexRow]) -> str:
    """The page of a whole zoo: one row a conversion."""
    summaries = [(summarise(row.report), row) for row in rows]
    return render(
        "index.html.j2",
        rows=summaries,
        proven=sum(row.report.validation.passed for row in rows),
        headings=HEADINGS,
    )
