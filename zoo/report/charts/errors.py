"""How far outputs lie from eager: one mark a golden case, and the spread over single elements."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from markupsafe import Markup

from menagerie.figures import count, decibels, error, scientific
from zoo.report.summary import badness
from zoo.report.svg import (
    WIDTH,
    Linear,
    Log,
    circle,
    cross,
    cut,
    line,
    picture,
    rect,
    scale_marks,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from zoo.records import OutputParity
    from zoo.report.summary import OutputCases

__all__ = ["error_dots", "error_histogram"]

_MOST_ROWS = 24
_FEWEST_DECADES = 6
_TOP, _ROW, _FOOT = 34, 30, 46
_LABEL = 190  # left column, for names
_EXACT, _START, _END, _INFINITE = 212, 268, 800, 836  # column of exact ones, the scale, of infinity
_LEFT, _EXACT_WIDTH, _PLOT = 60, 40, 150  # of a histogram


def error_dots(outputs: Sequence[OutputCases]) -> Markup:
    """Draws one row an output, one mark a case, on a logarithmic scale of the max abs error.

    The worst 24 outputs are drawn when there are more; the table has all.
    """
    worst = sorted(outputs, key=lambda output: badness(output.worst), reverse=True)[:_MOST_ROWS]
    shown = [o for o in outputs if o in worst]
    if not shown:
        return Markup()
    axis = _dots_axis(shown)
    bottom = _TOP + _ROW * len(shown)
    ticks = [(axis(10.0**e), scientific(10.0**e)) for e in axis.decades()]
    body = [*_legend(), text(_EXACT, bottom + 18, "exact", "tick", anchor="middle")]
    body.append(text(_INFINITE, bottom + 18, "∞", "tick", anchor="middle"))
    caption = "max abs error, in the output's own units"
    body += scale_marks(ticks, _TOP - 8, bottom, caption)
    for index, output in enumerate(shown):
        body += _dots_row(output, axis, _TOP + _ROW * (index + 0.5))
    failed = sum(not p.passed for output in outputs for p in output.cases)
    description = (
        f"Largest absolute error of {len(shown)} of {len(outputs)} outputs over all golden cases; "
        f"{failed} of {sum(len(o.cases) for o in outputs)} comparisons failed."
    )
    title = "Error of every output against eager"
    return picture("chart", (WIDTH, bottom + _FOOT), title, description, body)


def _dots_axis(outputs: Sequence[OutputCases]) -> Log:
    """A scale that holds every error and every tolerance, with a decade to spare."""
    values = [p.max_abs for output in outputs for p in output.cases]
    values += [p.allowed for o in outputs for p in o.cases if p.allowed is not None]
    shown = [math.log10(v) for v in values if 0 < v < math.inf] or [-6.0, -4.0]
    return Log(math.floor(min(shown)) - 1, math.ceil(max(shown)) + 1, _START, _END)


def _dots_row(output: OutputCases, axis: Log, y: float) -> Iterator[Markup]:
    yield text(_LABEL, y + 4, cut(output.name, _LABEL), "label", anchor="end")
    yield line(_EXACT - 14, y, _INFINITE + 14, y, "rule")
    if output.allowed is not None:
        x = axis(output.allowed)
        yield rect(_EXACT - 14, y - 11, x - _EXACT + 14, 22, "allowed", round_=4)
        yield line(x, y - 13, x, y + 13, "limit")
    for parity in output.cases:
        yield _dot(parity, axis, y)


def _dot(parity: OutputParity, axis: Log, y: float) -> Markup:
    tip = (
        f"case {parity.case}: max abs error {error(parity.max_abs)}, SNR {decibels(parity.snr_db)}"
    )
    if not parity.passed:
        finite = math.isfinite(parity.max_abs) and parity.nonfinite_match and parity.max_abs > 0
        x = axis(parity.max_abs) if finite else float(_INFINITE)
        return cross(x, y, 6, "mark-bad", tip=f"{tip}; failed")
    x = axis(parity.max_abs) if parity.max_abs > 0 else float(_EXACT)
    return circle(x, y, 6, "mark", tip=tip)


def _legend() -> list[Markup]:
    y = 12
    return [
        circle(_START + 6, y - 4, 5, "mark"),
        text(_START + 18, y, "a golden case", "tick"),
        cross(_START + 126, y - 4, 5, "mark-bad"),
        text(_START + 138, y, "failed", "tick"),
        line(_START + 206, y - 11, _START + 206, y + 3, "limit"),
        text(_START + 214, y, "tolerance: left of it an output passes", "tick"),
    ]


def error_histogram(output: OutputCases, *, width: float = WIDTH) -> Markup:
    """Draws the errors of all elements of one output, over all its golden cases.

    Args:
        output: nothing is drawn where none of its cases has a histogram, or all is exact.
        width: of the picture, in user units.
    """
    exact, counts = _added(output)
    total = exact + sum(counts.values())
    if total == exact:
        return Markup()
    limit = output.allowed
    axis = _histogram_axis(counts, limit, width - 20)
    top, bottom = 26, 26 + _PLOT
    share = Linear(105 * max([exact, *counts.values()]) / total, bottom, top)
    body = list(_shares(share, axis.end))
    ticks = [(axis(10.0**e), scientific(10.0**e)) for e in axis.decades()]
    caption = "absolute error of an element, in the output's units"
    body += scale_marks(ticks, bottom, bottom, caption)
    middle = _LEFT + _EXACT_WIDTH / 2
    body.append(text(middle, bottom + 18, "exact", "tick", anchor="middle"))

    def bar(x: float, wide: float, number: int, style: str, tip: str) -> Markup:
        y = share(100 * number / total)
        return rect(x, y, wide, bottom - y, style, tip=tip)

    body.append(bar(_LEFT, _EXACT_WIDTH, exact, "bar-soft", count(exact, "exact element")))
    for half, number in sorted(counts.items()):
        low, high = 10 ** (half / 2), 10 ** ((half + 1) / 2)
        x, style = axis(low), "bar" if limit is None or low < limit else "bar-bad"
        tip = f"{count(number, 'element')} between {scientific(low)} to {scientific(high)}"
        body.append(bar(x + 1, axis(high) - x - 2, number, style, tip))
    body.append(line(_LEFT, bottom, axis.end, bottom, "rule"))
    if limit is not None:
        x = axis(limit)
        body.append(line(x, 2, x, bottom, "limit"))
        written = f"tolerance {scientific(limit)}"
        body.append(text(x - 6, 12, written, "tick limit-text", anchor="end"))
    description = f"{exact} of {total} elements are exact; the others err as drawn."
    title = f"Errors of the elements of {output.name}"
    return picture("chart", (width, bottom + _FOOT), title, description, body)


def _added(output: OutputCases) -> tuple[int, dict[int, int]]:
    """The sum of all cases' histograms: exact elements, and counts by half decade."""
    histograms = [p.errors for p in output.cases if p.errors is not None]
    counts: dict[int, int] = {}
    for histogram in histograms:
        for half, number in enumerate(histogram.counts, histogram.first):
            counts[half] = counts.get(half, 0) + number
    return sum(h.exact for h in histograms), counts


def _histogram_axis(counts: dict[int, int], limit: float | None, end: float) -> Log:
    """From the smallest error to the largest or the tolerance, whatever lies further right."""
    halves = [half for half, number in counts.items() if number] or [-14]
    low, high = min(halves) // 2, max(halves) // 2 + 1
    if limit is not None:
        exponent = int(f"{limit:e}".split("e")[1])
        low, high = min(low, exponent), max(high, exponent + 1)
    return Log(min(low, high - _FEWEST_DECADES), high, _LEFT + _EXACT_WIDTH + 26, end)


def _shares(share: Linear, end: float) -> Iterator[Markup]:
    yield text(_LEFT, 12, "share of elements", "axis")
    for tick in share.ticks():
        y = share(tick)
        yield line(_LEFT, y, end, y, "grid")
        yield text(_LEFT - 8, y + 4, f"{tick:.3g} %", "tick", anchor="end")
