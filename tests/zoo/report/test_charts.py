"""The charts: marks are where the numbers say."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from menagerie.validation.findings import KernelTime, Peaks, Profile
from zoo.records import StageTime
from zoo.report.charts import (
    MarkKind,
    bar_among,
    error_chart,
    error_histogram,
    kernel_chart,
    latency_chart,
    size_chart,
    stage_chart,
)
from zoo.report.summary import OutputCases, latencies

if TYPE_CHECKING:
    from zoo.records import ConversionReport
    from zoo.report.charts import Chart, Mark


def marks(chart: Chart | None, kind: MarkKind) -> list[Mark]:
    """The marks of one kind, in the order in which they are drawn."""
    assert chart is not None
    return [mark for row in chart.rows for mark in row.marks if mark.kind is kind]


def test_failed_cases_are_right_of_the_tolerance_and_of_another_kind(
    diverged: ConversionReport,
) -> None:
    """Shape and place say it without the colour."""
    chart = error_chart([OutputCases("main", "logits", diverged.validation.programs[0].parity)])
    [limit] = marks(chart, MarkKind.LIMIT)
    dots, failed = marks(chart, MarkKind.DOT), marks(chart, MarkKind.FAILED)
    assert len(dots) == 2
    assert all(dot.start < limit.start for dot in dots)
    assert len(failed) == 1
    assert failed[0].start > limit.start
    assert failed[0].tip.endswith("; failed")


def test_errors_that_are_no_numbers_are_drawn(diverged: ConversionReport) -> None:
    """Infinity, NaN positions and what must be exact all have their place."""
    base = diverged.validation.programs[0].parity[1]
    wild = [
        replace(base, max_abs=math.inf),
        replace(base, max_abs=0.0, nonfinite_match=False),
        replace(base, tolerance=None, max_abs=3.0),
    ]
    chart = error_chart([OutputCases("main", str(i), (p,)) for i, p in enumerate(wild)])
    failed = marks(chart, MarkKind.FAILED)
    assert len(failed) == len(wild)
    assert failed[0].start == failed[1].start > failed[2].start


def test_at_most_24_outputs_are_drawn_the_worst_among_them(resnet: ConversionReport) -> None:
    """A model of many outputs keeps a readable chart that hides no failure."""
    good = resnet.validation.programs[0].parity[0]
    bad = replace(good, passed=False, max_abs=1.0)
    outputs = [OutputCases("main", f"out{i}", (good,)) for i in range(40)]
    chart = error_chart([*outputs, OutputCases("main", "bad", (bad,))])
    assert chart is not None
    assert len(chart.rows) == 24
    assert "bad" in {row.name for row in chart.rows}


@pytest.mark.parametrize("value", [1e-300, 3e-9, 1.0, 7e300])
def test_every_error_is_inside_its_chart(resnet: ConversionReport, value: float) -> None:
    """However small or large, a mark is on the scale."""
    found = replace(resnet.validation.programs[0].parity[0], max_abs=value)
    [dot] = marks(error_chart([OutputCases("main", "x", (found,))]), MarkKind.DOT)
    assert 0 <= dot.start <= 100


def test_histogram_columns_are_shares(resnet: ConversionReport) -> None:
    """Heights are proportional to counts, over all cases together."""
    cases = resnet.validation.programs[0].parity[:1]
    drawn = error_histogram(OutputCases("main", "logits", cases))
    assert drawn is not None
    assert cases[0].errors is not None
    counts = cases[0].errors.counts
    assert [height for _, height in drawn.columns] == pytest.approx(
        [100 * number / max(counts) for number in counts]
    )
    assert all(mark.end <= (drawn.limit or 0) for mark, _ in drawn.columns)


def test_no_histogram_where_nothing_errs(diverged: ConversionReport) -> None:
    """An exact output needs none."""
    exact = diverged.validation.programs[0].parity[2:]
    assert error_histogram(OutputCases("main", "logits", exact)) is None


def test_latency_bars_are_to_scale(resnet: ConversionReport) -> None:
    """The artifact's bar is to eager's as their medians."""
    chart = latency_chart(latencies(resnet))
    [artifact], [eager] = marks(chart, MarkKind.BAR), marks(chart, MarkKind.HOLLOW)
    assert artifact.end / eager.end == pytest.approx(23.4 / 34.9)
    spread = marks(chart, MarkKind.WHISKER)[0]
    assert (spread.start / artifact.end, spread.end / artifact.end) == pytest.approx((0.94, 1.09))


def test_latency_without_eager_or_at_all(resnet: ConversionReport) -> None:
    """One bar when eager was not timed; no chart when nothing was."""
    alone = resnet.model_copy(update={"eager_latency": ()})
    assert marks(latency_chart(latencies(alone)), MarkKind.HOLLOW) == []
    assert latency_chart(()) is None


def test_stages_follow_one_another() -> None:
    """Each bar begins where the one before it ended, and lengths are times."""
    chart = stage_chart([StageTime(stage=s, seconds=t) for s, t in (("a", 10.0), ("b", 30.0))])
    first, second = marks(chart, MarkKind.BAR)
    assert (first.start, first.end, second.start, second.end) == pytest.approx((0, 25, 25, 100))


def test_size_parts_follow_one_another() -> None:
    """Lengths are shares of the whole, and said; a part of nothing draws nothing."""
    chart = size_chart([("weights", 900), ("library", 100)])
    weights, library = marks(chart, MarkKind.BAR)
    assert (weights.end, library.start, library.end) == pytest.approx((90, 90, 100))
    assert chart is not None
    nb = "\N{NO-BREAK SPACE}"
    assert [row.value for row in chart.rows] == [f"900 B, 90.0{nb}%", f"100 B, 10.0{nb}%"]
    assert size_chart([("weights", 0)]) is None


def _profile(*names: str) -> Profile:
    kernels = tuple(
        KernelTime(kernel=name, calls=2, milliseconds=8.0 / 2**i, flops=0.0, bytes=2e6)
        for i, name in enumerate(names)
    )
    peaks = Peaks(flops=1e9, bytes=1e9)
    return Profile(threads=1, runs=2, milliseconds=10.0, peaks=peaks, kernels=kernels)


def test_each_kernel_has_its_milliseconds_its_share_and_its_roofline() -> None:
    """4 and 2 ms of a run of 10; a megabyte a call takes 1 ms at the peak of memory."""
    chart = kernel_chart(_profile("first", "second", "third"), most=2)
    assert chart is not None
    assert [(r.name, r.value) for r in chart.rows] == [
        ("first", "4.00 ms, 40.0\xa0%"),
        ("second", "2.00 ms, 20.0\xa0%"),
    ]
    assert [(m.start, m.end) for m in marks(chart, MarkKind.WHISKER)] == [(25, 100), (25, 50)]
    assert kernel_chart(_profile(), most=5) is None


def test_a_column_has_a_bar_a_figure() -> None:
    """The largest fills it; what is not known has none."""
    column = (1e6, None, 4e6, math.nan)
    bars = [bar_among(value, column) for value in column]
    assert [bar and bar.end for bar in bars] == [25, None, 100, None]
    assert bar_among(1.0, [1.0, None]) is None


def test_equal_bits_are_further_than_any_noise() -> None:
    """Their bar fills the column; that of 100 dB leaves room."""
    column = (100.0, math.inf)
    assert [bar.end for value in column if (bar := bar_among(value, column))] == [50, 100]
