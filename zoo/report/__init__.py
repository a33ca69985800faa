"""What a person reads about a conversion: report.json, report.html, Markdown, an index."""

from zoo.report.files import (
    FAILURE_PAGE,
    read_graphs,
    read_report,
    write_failure,
    write_index,
    write_report,
)
from zoo.report.page import failure_markdown, log_end, markdown, plain_text
from zoo.report.summary import Summary, cause, summarise

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
