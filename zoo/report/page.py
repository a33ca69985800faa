"""A report's pages: self-contained HTML without scripts, and Markdown.

The Markdown is short enough to be read on a flow run's page.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from inspect import isfunction
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from menagerie import figures
from menagerie.profile import KernelRow, kernel_rows
from zoo.records import ConversionReport, FailureReport, ProgramGraphs
from zoo.report import charts, summary
from zoo.report.graph import GraphListing, graph_listing
from zoo.report.summary import OutputCases

_MOST_HISTOGRAMS = 6
_MOST_KERNELS = 12
_MOST_LAYERS = 12  # shown unfolded
# GitHub's Markdown makes links of the last two alternatives: mail addresses and `www.`
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&:@]|(?<=www)\.)", re.IGNORECASE)
_BREAKS = re.compile(r"[^\S\u00a0\u202f]+")  # white space, except the no-break spaces of figures
_MOST_OUTPUTS = 12
_MOST_LAYERS_IN_MARKDOWN = 5  # of a program
_LOG_LINES = 60
_LINE_CHARACTERS = 300
TEMPLATES = Path(__file__).parent / "templates"


def _histograms(shown: Sequence[OutputCases]) -> list[tuple[OutputCases, charts.Histogram]]:
    worst = sorted(shown, key=lambda output: summary.badness(output.worst), reverse=True)
    drawn = [(o, charts.error_histogram(o)) for o in worst if o.worst.max_abs > 0]
    return [(o, found) for o, found in drawn[:_MOST_HISTOGRAMS] if found is not None]


def _graphs(report: ConversionReport, programs: Sequence[ProgramGraphs]) -> list[GraphListing]:
    """Return each program's graphs, with the diverging node marked."""
    found = report.diagnosis
    wrong = {found.program: found.divergence.node} if found and found.divergence else {}
    return [graph_listing(graphs, wrong=wrong.get(graphs.program)) for graphs in programs]


def _profiles(report: ConversionReport) -> list[tuple[str, charts.Chart | None, list[KernelRow]]]:
    """Return the name, the chart and the table of the longest kernels of each profiled program."""
    found = [(p.program, p.profile) for p in report.validation.programs if p.profile is not None]
    return [
        (name, charts.kernel_chart(profile, _MOST_KERNELS), kernel_rows(profile, _MOST_KERNELS))
        for name, profile in found
    ]


def render_report(report: ConversionReport, graphs: Sequence[ProgramGraphs] = ()) -> str:
    """Render the page of one conversion, with its programs' graphs."""
    shown, times = summary.outputs(report), summary.latencies(report)
    cases = {p.program: {c.case: c for c in p.cases} for p in report.validation.programs}
    parts = [("weights", report.weights_bytes)]
    parts += [(f"library of {r.program}", r.library_bytes) for r in report.lowering]
    return render(
        "report.html.j2",
        report=report,
        outputs=shown,
        comparisons=[(output, parity) for output in shown for parity in output.cases],
        worst=[(output, output.worst) for output in shown],
        cases=cases,
        dynamic=any(case.dimensions for shapes in cases.values() for case in shapes.values()),
        rounding=[log for log in report.passes if log.rounding],
        most_layers=_MOST_LAYERS,
        graphs=_graphs(report, graphs),
        stages=charts.stage_chart(report.stages),
        errors=charts.error_chart(shown),
        histograms=_histograms(shown),
        latency=None if report.validation.emulated else charts.latency_chart(times),
        profiles=_profiles(report),
        sizes=charts.size_chart(parts),
    )


def render_graph(graphs: ProgramGraphs, title: str) -> str:
    """Render a page with only a program's graphs."""
    return render("graph.html.j2", title=title, graph=graph_listing(graphs))


def failure_advice(report: FailureReport) -> str:
    """Return the next step, or where to look if the error names none."""
    if report.next_step:
        return report.next_step
    where = "Read the log's end below. " if report.log else ""
    return f"{where}`zoo convert {report.model} --target {report.target} --local` tries it alone"


def render_failure(report: FailureReport) -> str:
    """Render the page of a conversion that failed before there was anything to validate."""
    return render("failure.html.j2", report=report, stages=charts.stage_chart(report.stages))


def render_index(rows: Sequence[tuple[ConversionReport, str]]) -> str:
    """Render the page of a whole zoo: a row per conversion, with its page's address."""
    return render(
        "index.html.j2",
        rows=[(summary.summarise(report), report, link) for report, link in rows],
        proven=sum(report.validation.passed for report, _ in rows),
    )


def render(template: str, *, script: str = "", **values: object) -> str:
    """Fill a template of `TEMPLATES` with `values`.

    The page's security policy allows only its style sheet and `script`, by their hashes.
    """
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    scripts = f"script-src {_hash(script)}; " if script else ""
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; {scripts}img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    page = _environment().get_template(template)
    ours = {"style": Markup(style), "script": Markup(script)}  # noqa: S704 - our own files
    return page.render(ours, policy=policy, **values)


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def _environment() -> Environment:
    """Return the environment of page templates, with a filter for every kind of figure."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {n: each for n, each in vars(figures).items() if isfunction(each)}
    ours = {"charts": charts, "summary": summary, "failure_advice": failure_advice}
    environment.globals |= {**ours, "speed": figures.speed, "count": figures.count}
    return environment


def plain_text(content: str) -> str:
    """Return a text on one line, with all Markdown and HTML escaped.

    It is for use within a line: characters that start a list or title are not escaped.
    """
    return _SPECIAL.sub(r"\\\1", _BREAKS.sub(" ", content).strip())


def _escaped(value: object) -> object:
    return value if isinstance(value, Markup) else plain_text(str(value))


@cache
def _of_markdown() -> Environment:
    return _environment().overlay(autoescape=False, finalize=_escaped)


def render_markdown(template: str, **values: object) -> str:
    """Fill a template of Markdown; only `Markup` values can become markup."""
    return _of_markdown().get_template(template).render(values).rstrip("\n") + "\n"


def _in_markdown(template: str, report: ConversionReport | FailureReport, **values: object) -> str:
    stages = ", ".join(f"{each.stage} {figures.seconds(each.seconds)}" for each in report.stages)
    return render_markdown(template, report=report, stages=stages, **values)


def markdown(report: ConversionReport) -> str:
    """Render a report as Markdown, for a Prefect artifact or a pull request.

    No name in the report can become markup.
    """
    return _in_markdown(
        "report.md.j2",
        report,
        parities=sorted(
            summary.parities(report), key=lambda p: summary.badness(p[1]), reverse=True
        ),
        most_outputs=_MOST_OUTPUTS,
        kinds={(p.program, c.case): c.kind for p in report.validation.programs for c in p.cases},
        most_layers=_MOST_LAYERS_IN_MARKDOWN,
    )


def log_end(text: str) -> str:
    """Return a log's last lines for a page, shortened and without control characters."""
    lines = [line for line in text.replace("\r", "\n").split("\n") if line.strip()]
    shown = ("".join(c if c.isprintable() else " " for c in line) for line in lines[-_LOG_LINES:])
    return "\n".join(line.rstrip()[:_LINE_CHARACTERS] for line in shown)


def failure_markdown(report: FailureReport) -> str:
    """Render a failure for a Prefect artifact; no text of the report can become markup."""
    return _in_markdown("failure.md.j2", report)
