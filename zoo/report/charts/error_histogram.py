"""How the elements of one output spread over the decades of error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from zoo.report.charts.svg import WIDTH, Linear, Log, line, picture, rect, text
from zoo.report.numbers import count, scientific

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zoo.records import ErrorHistogram, OutputParity

__all__ = ["error_histogram"]

_LEFT, _EXACT_WIDTH, _GAP = 60, 40, 26
_START, _MARGIN = _LEFT + _EXACT_WIDTH + _GAP, 20
_TOP, _PLOT, _FOOT = 26, 150, 46
_FEWEST_DECADES = 6


def _added(histograms: Sequence[ErrorHistogram]) -> tuple[int, dict[int, int]]:
    """The sum of several histograms: exact elements, and counts by half decade."""
    counts: dict[int, int] = {}
    for histogram in histograms:
        for index, number in enumerate(histogram.counts):
            half = histogram.first + index
            counts[half] = counts.get(half, 0) + number
    return sum(h.exact for h in histograms), counts


def _axis(counts: dict[int, int], tolerance: float | None, end: float) -> Log:
    """From the smallest error to the largest or the tolerance, whatever lies further right."""
    halves = [half for half, number in counts.items() if number] or [-14]
    low, high = min(halves) // 2, max(halves) // 2 + 1
    if tolerance is not None:
        exponent = float(f"{tolerance:e}".split("e")[1])
        low, high = min(low, int(exponent)), max(high, int(exponent) + 1)
    return Log(min(low, high - _FEWEST_DECADES), high, _START, end)


def _frame(axis: Log, share: Linear, bottom: float) -> list[Markup]:
    marks = [
        text(_LEFT, 12, "share of elements", "axis", anchor="start"),
        text(_LEFT + _EXACT_WIDTH / 2, bottom + 18, "exact", "tick", anchor="middle"),
        text(
            (_START + axis.end) / 2,
            bottom + 38,
            "absolute error of an element, in the output's units",
            "axis",
            anchor="middle",
        ),
    ]
    for tick in share.ticks():
        y = share(tick)
        marks += [
            line(_LEFT, y, axis.end, y, "grid"),
            text(_LEFT - 8, y + 4, f"{tick:.3g} %", "tick", anchor="end"),
        ]
    marks += [
        text(axis(10.0**e), bottom + 18, scientific(10.0**e), "tick", anchor="middle")
        for e in axis.decades()
    ]
    return marks


def _tolerance(axis: Log, tolerance: float, bottom: float) -> list[Markup]:
    x = axis(tolerance)
    return [
        line(x, 2, x, bottom, "limit"),
        text(x - 6, 12, f"tolerance {scientific(tolerance)}", "tick limit-text", anchor="end"),
    ]


def error_histogram(name: str, cases: Sequence[OutputParity], *, width: float = WIDTH) -> Markup:
    """Draws the errors of all elements of one output, over all its golden cases.

    Args:
        name: of the output.
        cases: its parities; nothing is drawn when none has a histogram, or all is exact.
        width: of the picture, in user units.
    """
    histograms = [p.errors for p in cases if p.errors is not None]
    exact, counts = _added(histograms)
    total = exact + sum(counts.values())
    if total == exact:
        return Markup()
    tolerance = min((p.allowed for p in cases if p.allowed is not None), default=None)
    axis = _axis(counts, tolerance, width - _MARGIN)
    bottom = _TOP + _PLOT
    highest = 100.0 * max([exact, *counts.values()]) / total
    share = Linear(highest * 1.05, bottom, _TOP)
    body = _frame(axis, share, bottom)
    y = share(100.0 * exact / total)
    body.append(
        rect(_LEFT, y, _EXACT_WIDTH, bottom - y, "bar-soft", tip=count(exact, "exact element"))
    )
    for half, number in sorted(counts.items()):
        x, next_x, y = (
            axis(10 ** (half / 2)),
            axis(10 ** ((half + 1) / 2)),
            share(100.0 * number / total),
        )
        span = f"{scientific(10 ** (half / 2))} to {scientific(10 ** ((half + 1) / 2))}"
        bad = tolerance is not None and 10 ** (half / 2) >= tolerance
        tip = f"{count(number, 'element')} between {span}"
        body.append(
            rect(x + 1, y, next_x - x - 2, bottom - y, "bar-bad" if bad else "bar", tip=tip)
        )
    body.append(line(_LEFT, bottom, axis.end, bottom, "rule"))
    if tolerance is not None:
        body += _tolerance(axis, tolerance, bottom)
    description = f"{exact} of {total} elements are exact; the others err as drawn."
    title = f"Errors of the elements of {name}"
    return picture(bottom + _FOOT, title, description, body, width=width)
