"""Pictures of a report: SVG text, styled by the page's own CSS, nothing fetched, no scripts."""

from zoo.report.charts.error_dots import error_dots
from zoo.report.charts.error_histogram import error_histogram
from zoo.report.charts.latency_bars import latency_bars
from zoo.report.charts.size_bar import size_bar
from zoo.report.charts.stage_bars import stage_bars

__all__ = ["error_dots", "error_histogram", "latency_bars", "size_bar", "stage_bars"]
