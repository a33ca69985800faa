"""The report as Markdown: short enough to be read on a flow run's page."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from markupsafe import Markup

from menagerie.figures import seconds
from zoo.report.page import environment
from zoo.report.summary import badness, parities

if TYPE_CHECKING:
    from jinja2 import Environment

    from zoo.records import ConversionReport, FailureReport

# The last two are links by themselves in GitHub's Markdown: addresses of mail, and `www.`
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&:@]|(?<=www)\.)", re.IGNORECASE)
_BREAKS = re.compile(r"[^\S\u00a0\u202f]+")  # white space, but for what figures hold
_MOST_OUTPUTS = 12
_MOST_LAYERS = 5  # of a program
_LOG_LINES = 60
_LINE_CHARACTERS = 300


def plain_text(content: str) -> str:
    """A text in which nothing is Markdown or HTML, on one line.

    For places within a line: what makes lists or titles at the start of one is not escaped.
    """
    return _SPECIAL.sub(r"\\\1", _BREAKS.sub(" ", content).strip())


def _escaped(value: object) -> object:
    """What a template writes: all but what it calls safe."""
    return value if isinstance(value, Markup) else plain_text(str(value))


@cache
def _templates() -> Environment:
    return environment().overlay(autoescape=False, finalize=_escaped)


def _render(template: str, report: ConversionReport | FailureReport, **values: object) -> str:
    stages = ", ".join(f"{each.stage} {seconds(each.seconds)}" for each in report.stages)
    text = _templates().get_template(template).render(report=report, stages=stages, **values)
    return text.rstrip("\n") + "\n"


def markdown(report: ConversionReport) -> str:
    """Renders a report for a Prefect artifact or a pull request.

    Args:
        report: of one conversion, passed or failed.

    Returns:
        Markdown in which no name of the report can become markup.
    """
    return _render(
        "report.md.j2",
        report,
        parities=sorted(parities(report), key=lambda p: badness(p[1]), reverse=True),
        most_outputs=_MOST_OUTPUTS,
        kinds={(p.program, c.case): c.kind for p in report.validation.programs for c in p.cases},
        most_layers=_MOST_LAYERS,
    )


def log_end(text: str) -> str:
    """The last lines of a log as a page can show them: no control characters, none too long."""
    lines = [line for line in text.replace("\r", "\n").split("\n") if line.strip()]
    shown = ("".join(c if c.isprintable() else " " for c in line) for line in lines[-_LOG_LINES:])
    return "\n".join(line.rstrip()[:_LINE_CHARACTERS] for line in shown)


def failure_markdown(report: FailureReport) -> str:
    """Renders a failure for a Prefect artifact; no text of the report can become markup."""
    return _render("failure.md.j2", report)
