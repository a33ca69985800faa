"""Charts of a report: rows of a table with marks on a shared scale.

The template draws the marks, so all words are ordinary text of the page, which wraps, scales and
works with screen readers. Positions on a scale are in percent of its width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate, pairwise

from menagerie.figures import (
    count,
    decibels,
    error,
    milliseconds,
    percent,
    scientific,
    size,
    thousands,
)
from menagerie.figures import seconds as duration
from menagerie.profile import short_name
from menagerie.validation.findings import Profile
from zoo.records import StageTime
from zoo.report.summary import Latencies, OutputCases, badness

_MOST_ROWS = 24
_FEWEST_DECADES = 6
_EXACT, _START, _END, _INFINITE = 4.0, 16.0, 86.0, 97.0  # of exact values, the scale, infinity
_LEAST_WIDTH = 0.3  # of a bar that is still visible
_EXACT_DB = 200.0  # drawn for equal bits, whose SNR is infinite; float32 reaches about 150


class MarkKind(StrEnum):
    """How a mark looks; a class of the style sheet."""

    BAR = "bar"
    HOLLOW = "bar-hollow"  # the reference of a bar
    WHISKER = "whisker"
    ALLOWED = "allowed"  # a range that is within tolerance
    LIMIT = "limit"
    DOT = "mark"
    FAILED = "mark-bad"


@dataclass(frozen=True)
class Mark:
    """A mark from `start` to `end`, percent of the scale; dots and limits have no extent."""

    kind: MarkKind
    start: float
    end: float
    tip: str = ""


@dataclass(frozen=True)
class Row:
    """One row: its name, its marks, the value written after them, a heading above it."""

    name: str
    marks: tuple[Mark, ...]
    value: str = ""
    heading: str = ""


@dataclass(frozen=True)
class Chart:
    """Rows on one scale: `ticks` are its numbers and their positions, `caption` its quantity."""

    caption: str
    rows: tuple[Row, ...]
    ticks: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True)
class Histogram:
    """Columns on a logarithmic scale, with heights in percent of the highest.

    `limit` is the tolerance's position, None without one; `note` says how much is exact.
    """

    columns: tuple[tuple[Mark, float], ...]
    ticks: tuple[tuple[float, str], ...]
    limit: float | None
    note: str


def latency_chart(times: Sequence[Latencies]) -> Chart | None:
    """Draw two bars per program: the artifact above eager PyTorch, if that was measured.

    A bar ends at the median; its whisker goes from the minimum to the 90th percentile.
    """
    rows = []
    for one in times:
        heading = one.program
        for name, measured, kind in (
            ("artifact", one.artifact, MarkKind.BAR),
            ("eager", one.eager if one.artifact else None, MarkKind.HOLLOW),
        ):
            if measured is not None:
                bar = Mark(kind, 0.0, measured.median_ms)
                spread = Mark(MarkKind.WHISKER, measured.minimum_ms, measured.p90_ms)
                rows.append(Row(name, (bar, spread), milliseconds(measured.median_ms), heading))
                heading = ""
    return _linear("latency of one call: median, and minimum to 90th percentile", rows)


def kernel_chart(profile: Profile, most: int) -> Chart | None:
    """Draw the longest kernels; a whisker begins at the shortest time that the roofline allows."""
    rows = []
    for kernel in profile.kernels[:most]:
        took = kernel.milliseconds / profile.runs
        least = min(1.0, profile.of_roofline(kernel)) * took
        marks = Mark(MarkKind.BAR, 0.0, took), Mark(MarkKind.WHISKER, least, took)
        value = f"{milliseconds(took)}, {percent(profile.share(kernel))}"
        rows.append(Row(short_name(kernel), marks, value))
    return _linear("time of a run, and from where on the roofline would allow less", rows)


def stage_chart(stages: Sequence[StageTime]) -> Chart | None:
    """Return a chart with a row per stage; each bar begins where the previous one ended."""
    return _in_succession("since the start", [(s.stage, s.seconds) for s in stages], duration)


def size_chart(parts: Sequence[tuple[str, int]]) -> Chart | None:
    """Return a chart with a row per part of the artifact; `parts` has names and bytes."""
    return _in_succession("of all files", parts, lambda value: size(round(value)))


def _in_succession(
    caption: str, parts: Sequence[tuple[str, float]], written: Callable[[float], str]
) -> Chart | None:
    """Draw a bar per part, beginning where the previous one ends, with its share of the whole."""
    ends = list(accumulate((amount for _, amount in parts), initial=0.0))
    whole = ends[-1]
    rows = [
        Row(name, (Mark(MarkKind.BAR, *bar),), f"{written(amount)}, {percent(amount / whole)}")
        for (name, amount), bar in zip(parts, pairwise(ends), strict=True)
        if whole
    ]
    return _linear(caption, rows)


def _linear(caption: str, rows: Sequence[Row]) -> Chart | None:
    """Draw rows whose marks share a unit, from 0 to the longest; None if all are 0."""
    longest = max((mark.end for row in rows for mark in row.marks), default=0)
    if longest <= 0:
        return None
    scale = 100.0 / longest

    def scaled(mark: Mark) -> Mark:
        start, end = mark.start * scale, mark.end * scale
        least = start if mark.kind is MarkKind.WHISKER else start + _LEAST_WIDTH
        return replace(mark, start=start, end=max(end, least))

    return Chart(caption, tuple(replace(r, marks=tuple(map(scaled, r.marks))) for r in rows))


@dataclass(frozen=True)
class _Decades:
    """A map from [10^low, 10^high] to [start, end]; values outside are clamped."""

    low: int
    high: int
    start: float = 0.0
    end: float = 100.0

    def __call__(self, value: float) -> float:
        exponent = min(float(self.high), max(float(self.low), math.log10(value)))
        return self.start + (self.end - self.start) * (exponent - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        """Return the positions and labels of at most five decades."""
        exponents = range(self.low, self.high + 1, 1 + (self.high - self.low) // 5)
        return [(self(10.0**e), scientific(10.0**e)) for e in exponents]


def error_chart(outputs: Sequence[OutputCases]) -> Chart | None:
    """Draw a row per output and a mark per case on a logarithmic scale of the max abs error.

    If there are more than 24 outputs, only the worst 24 are shown; the table has all.
    """
    worst = sorted(outputs, key=lambda output: badness(output.worst), reverse=True)[:_MOST_ROWS]
    shown = [o for o in outputs if o in worst]
    if not shown:
        return None
    values = [p.max_abs for output in shown for p in output.cases]
    values += [p.allowed for o in shown for p in o.cases if p.allowed is not None]
    exponents = [math.log10(v) for v in values if 0 < v < math.inf] or [-6.0, -4.0]
    axis = _Decades(math.floor(min(exponents)) - 1, math.ceil(max(exponents)) + 1, _START, _END)
    ticks = ((_EXACT, "exact"), *axis.ticks(), (_INFINITE, "∞"))
    rows = tuple(Row(o.name, tuple(_error_marks(o, axis))) for o in shown)
    caption = (
        "max abs error in the output's own units; a golden case, a dot, passes left of the line"
    )
    return Chart(caption, rows, ticks)


def _error_marks(output: OutputCases, axis: _Decades) -> Iterable[Mark]:
    if output.allowed is not None:
        limit, tip = axis(output.allowed), f"tolerance {scientific(output.allowed)}"
        yield Mark(MarkKind.ALLOWED, 0.0, limit)
        yield Mark(MarkKind.LIMIT, limit, limit, tip)
    for parity in output.cases:
        # A case that failed for another reason than its error's size is drawn at infinity.
        finite = math.isfinite(parity.max_abs) and (parity.passed or parity.nonfinite_match)
        place = _EXACT if finite and parity.passed else _INFINITE
        if finite and parity.max_abs > 0:
            place = axis(parity.max_abs)
        tip = f"case {parity.case}: max abs error {error(parity.max_abs)}, "
        tip += f"SNR {decibels(parity.snr_db)}" + "; failed" * (not parity.passed)
        yield Mark(MarkKind.DOT if parity.passed else MarkKind.FAILED, place, place, tip)


def error_histogram(output: OutputCases) -> Histogram | None:
    """Return a histogram by half decade of one output's errors, over all its golden cases.

    Return None if none of its cases has a histogram, or all elements are exact.
    """
    histograms = [p.errors for p in output.cases if p.errors is not None]
    counts: dict[int, int] = {}
    for histogram in histograms:
        for half, number in enumerate(histogram.counts, histogram.first):
            counts[half] = counts.get(half, 0) + number
    exact, limit = sum(h.exact for h in histograms), output.allowed
    if not any(counts.values()):
        return None
    low, high = math.floor(min(counts) / 2), math.ceil((max(counts) + 1) / 2)
    if limit is not None:
        low, high = min(low, math.floor(math.log10(limit))), max(high, math.ceil(math.log10(limit)))
    axis = _Decades(min(low, high - _FEWEST_DECADES), high)
    highest = max(counts.values())
    columns = []
    for half, number in sorted(counts.items()):
        least, most = 10 ** (half / 2), 10 ** ((half + 1) / 2)
        tip = f"{count(number, 'element')} from {scientific(least)} to {scientific(most)}"
        failed = limit is not None and least >= limit
        kind = MarkKind.FAILED if failed else MarkKind.BAR
        columns.append((Mark(kind, axis(least), axis(most), tip), 100.0 * number / highest))
    total = exact + sum(counts.values())
    note = f"{thousands(exact)} of {count(total, 'element')} exact"
    note += f", {percent(highest / total)} in the highest column"
    note += "" if limit is None else f", tolerance {scientific(limit)}"
    return Histogram(
        columns=tuple(columns),
        ticks=tuple(axis.ticks()),
        limit=None if limit is None else axis(limit),
        note=note,
    )


def bar_among(value: float | None, column: Iterable[float | None]) -> Mark | None:
    """Draw a bar for a figure of a table's column; None without others to compare."""
    known = [_drawn(each) for each in column if each is not None and not math.isnan(each)]
    most = max(known, default=0.0)
    if value is None or math.isnan(value) or len(known) == 1 or most <= 0:
        return None
    return Mark(MarkKind.BAR, 0.0, max(_LEAST_WIDTH, 100.0 * _drawn(value) / most))


def _drawn(value: float) -> float:
    return _EXACT_DB if value == math.inf else max(value, 0.0)
