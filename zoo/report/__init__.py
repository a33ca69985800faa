"""What a person reads about a conversion: report.json, report.html, Markdown, an index."""

from zoo.report.files import (
    FAILURE_PAGE,
    read_graphs,
    read_report,
    write_failure,
    write_index,
    write_report,
)
from zoo.report.markdown import failure_markdown, log_end, markdown, plain_text
from zoo.report.phrases import cause
from zoo.report.summary import Summary, summarise

__all__ = [
    "FAILURE_PAGE",
    "Summary",
    "cause",
    "failure_markdown",
    "log_end",
    "markdown",
    "plain_text",
    "read_graphs",
    "read_report",
    "summarise",
    "write_failure",
    "write_index",
    "write_report",
]
