"""What a person reads about a conversion: report.json, report.html, Markdown, an index."""

from zoo.report.files import read_graphs, read_report, write_index, write_report
from zoo.report.markdown import markdown, plain_text
from zoo.report.phrases import cause
from zoo.report.summary import Summary, summarise

__all__ = [
    "Summary",
    "cause",
    "markdown",
    "plain_text",
    "read_graphs",
    "read_report",
    "summarise",
    "write_index",
    "write_report",
]
