"""The HTML pages: templates filled in, style and pictures inside, no script, nothing fetched."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from zoo.report import charts, numbers
from zoo.report.charts.error_dots import OutputCases
from zoo.report.charts.svg import WIDTH
from zoo.report.graphs import figure
from zoo.report.graphs import style as graph_style
from zoo.report.summary import latencies, parities, summarise
from zoo.report.words import EMULATED, HEADINGS, cause, commands, demand, heading, proof, tiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zoo.records import ConversionReport, OutputParity, ProgramGraphs

__all__ = ["IndexRow", "OutputView", "render_index", "render_report"]

_TEMPLATES = Path(__file__).parent / "templates"
_MOST_HISTOGRAMS = 6
_MOST_GRAPH_BYTES = 1_000_000  # of all pictures of graphs together


@dataclass(frozen=True)
class OutputView:
    """One output over all its golden cases; the name has its program's where there are several."""

    program: str
    name: str
    cases: tuple[OutputParity, ...]

    @property
    def worst(self) -> OutputParity:
        """The case that failed, or else the one with the largest error."""
        return max(self.cases, key=lambda p: (not p.passed, p.max_abs))


@dataclass(frozen=True)
class IndexRow:
    """A report and where its page lies, relative to the index; empty when it has none."""

    report: ConversionReport
    link: str


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {name: getattr(numbers, name) for name in numbers.__all__}
    environment.globals |= {"speed": numbers.speed, "count": numbers.count, "demand": demand}
    return environment


def _render(template: str, **values: object) -> str:
    """Fills a template; the policy admits this one style sheet by its hash, and nothing else."""
    style = (_TEMPLATES / "style.css").read_text(encoding="utf-8") + graph_style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    page = _environment().get_template(template)
    return page.render(style=Markup(style), policy=policy, **values)  # noqa: S704 - our own file


def _outputs(report: ConversionReport) -> tuple[OutputView, ...]:
    grouped: dict[tuple[str, str], list[OutputParity]] = {}
    for program, parity in parities(report):
        grouped.setdefault((program, parity.output), []).append(parity)
    several = len(report.validation.programs) > 1
    return tuple(
        OutputView(program, f"{program} · {output}" if several else output, tuple(cases))
        for (program, output), cases in grouped.items()
    )


def _histograms(outputs: Sequence[OutputView]) -> list[tuple[OutputView, Markup]]:
    """The worst outputs' histograms, as many as a reader will look at."""
    inexact = [view for view in outputs if view.worst.max_abs > 0]
    inexact.sort(key=lambda view: (view.worst.passed, -view.worst.max_abs))
    width = WIDTH if len(inexact) == 1 else WIDTH / 2
    drawn = [
        (view, charts.error_histogram(view.name, view.cases, width=width))
        for view in inexact[:_MOST_HISTOGRAMS]
    ]
    return [(view, drawing) for view, drawing in drawn if drawing]


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
            most_bytes=_MOST_GRAPH_BYTES // len(programs),
        )
        drawn.append((graphs.program, picture))
    return drawn


def render_report(report: ConversionReport, graphs: Sequence[ProgramGraphs] = ()) -> str:
    """The page of one conversion, with pictures of its programs' graphs."""
    outputs = _outputs(report)
    cases = {p.program: {c.case: c.dimensions for c in p.cases} for p in report.validation.programs}
    parts = [("weights", report.weights_bytes)]
    parts += [(f"library of {r.program}", r.library_bytes) for r in report.lowering]
    return _render(
        "report.html.j2",
        report=report,
        heading=heading(report),
        emulated=EMULATED if report.validation.emulated else "",
        proof=proof(report),
        tiles=tiles(report),
        commands=commands(report),
        outputs=outputs,
        cases=cases,
        dynamic=any(sizes for shapes in cases.values() for sizes in shapes.values()),
        times=latencies(report),
        diagnosis=report.diagnosis,
        cause="" if report.diagnosis is None else cause(report.diagnosis),
        pictures=_pictures(report, graphs),
        stage_bars=charts.stage_bars(report.stages),
        error_dots=charts.error_dots([OutputCases(v.name, v.cases) for v in outputs]),
        histograms=_histograms(outputs),
        latency_bars=("" if report.validation.emulated else charts.latency_bars(latencies(report))),
        size_bar=charts.size_bar(parts),
    )


def render_index(rows: Sequence[IndexRow]) -> str:
    """The page of a whole zoo: one row a conversion."""
    summaries = [(summarise(row.report), row) for row in rows]
    return _render(
        "index.html.j2",
        rows=summaries,
        proven=sum(row.report.validation.passed for row in rows),
        headings=HEADINGS,
    )
