"""Pictures of a report: SVG text, styled by the page's own CSS, nothing fetched, no scripts."""

from zoo.report.charts.bars import kernel_bars, latency_bars, size_bars, stage_bars
from zoo.report.charts.errors import error_dots, error_histogram

__all__ = [
    "error_dots",
    "error_histogram",
    "kernel_bars",
    "latency_bars",
    "size_bars",
    "stage_bars",
]
