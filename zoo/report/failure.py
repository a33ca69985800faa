"""The page of a conversion that ended before there was anything to validate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from menagerie.figures import seconds
from zoo.report.markdown import plain_text

if TYPE_CHECKING:
    from zoo.records import FailureReport

__all__ = ["failure_advice", "failure_markdown", "log_end"]

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
