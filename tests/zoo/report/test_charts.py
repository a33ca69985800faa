"""The pictures: marks stand where the numbers say."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.records import StageTime
from zoo.report.charts import error_dots, error_histogram, latency_bars, size_bars, stage_bars
from zoo.report.summary import OutputCases, latencies
from zoo.report.svg import Linear, Log, cut

if TYPE_CHECKING:
    from zoo.records import ConversionReport


def drawn(svg: str, style: str) -> list[ET.Element]:
    """The elements of one class, in the order in which they are drawn."""
    root = ET.fromstring(svg)  # noqa: S314 - text of our own making
    return [element for element in root.iter() if element.get("class") == style]


def number(element: ET.Element, name: str) -> float:
    """A numeric attribute."""
    return float(element.get(name, "nan"))


def test_failed_cases_lie_right_of_the_tolerance_and_are_crosses(
    diverged: ConversionReport,
) -> None:
    """Dots left of the line, crosses right of it: shape and place say it without the colour."""
    outputs = [OutputCases("main", "logits", diverged.validation.programs[0].parity)]
    svg = error_dots(outputs)
    limit = number(drawn(svg, "limit")[1], "x1")  # the first is the legend's
    dots = [number(d, "cx") for d in drawn(svg, "mark")[1:]]
    crosses = drawn(svg, "mark-bad")[1:]
    assert len(dots) == 2
    assert all(x < limit for x in dots)
    assert len(crosses) == 1
    assert float(crosses[0].get("d", "").removeprefix("M").split()[0]) > limit


def test_errors_that_are_no_numbers_are_drawn(diverged: ConversionReport) -> None:
    """Infinity, NaN positions and exact zeros all have their place."""
    base = diverged.validation.programs[0].parity[1]
    wild = [
        replace(base, max_abs=math.inf),
        replace(base, max_abs=0.0, nonfinite_match=False),
        replace(base, tolerance=None, max_abs=3.0),
    ]
    svg = error_dots([OutputCases("main", str(i), (p,)) for i, p in enumerate(wild)])
    assert len(drawn(svg, "mark-bad")) == 1 + len(wild)


def test_at_most_24_outputs_are_drawn_the_worst_among_them(resnet: ConversionReport) -> None:
    """A model of many outputs keeps a readable picture that hides no failure."""
    good = resnet.validation.programs[0].parity[0]
    bad = replace(good, passed=False, max_abs=1.0)
    outputs = [OutputCases("main", f"out{i}", (good,)) for i in range(40)]
    outputs.append(OutputCases("main", "bad", (bad,)))
    svg = error_dots(outputs)
    names = [element.text for element in drawn(svg, "label")]
    assert len(names) == 24
    assert "bad" in names


def test_histogram_bars_are_shares(resnet: ConversionReport) -> None:
    """Bar heights are proportional to counts, over all cases together."""
    cases = resnet.validation.programs[0].parity[:1]
    svg = error_histogram(OutputCases("main", "logits", cases))
    assert cases[0].errors is not None
    heights = [number(bar, "height") for bar in drawn(svg, "bar")]
    counts = cases[0].errors.counts
    assert heights == pytest.approx([h * max(heights) / max(counts) for h in counts], abs=0.02)


def test_no_histogram_where_nothing_errs(diverged: ConversionReport) -> None:
    """An exact output needs no picture."""
    exact = diverged.validation.programs[0].parity[2:]
    assert error_histogram(OutputCases("main", "logits", exact)) == ""


def test_latency_bars_are_to_scale(resnet: ConversionReport) -> None:
    """The artifact's bar is to eager's as their medians."""
    svg = latency_bars(latencies(resnet))
    artifact, eager = drawn(svg, "bar")[0], drawn(svg, "bar-hollow")[0]
    assert number(artifact, "width") / number(eager, "width") == pytest.approx(
        23.4 / 34.9, rel=1e-3
    )


def test_latency_without_eager_or_at_all(resnet: ConversionReport) -> None:
    """One bar when eager was not timed; no picture when nothing was."""
    alone = resnet.model_copy(update={"eager_latency": ()})
    assert drawn(latency_bars(latencies(alone)), "bar-hollow") == []
    assert latency_bars(()) == ""


def test_stages_follow_one_another() -> None:
    """Each bar begins where the one before it ended, and lengths are times."""
    svg = stage_bars([StageTime(stage=s, seconds=t) for s, t in (("a", 10.0), ("b", 30.0))])
    first, second = drawn(svg, "bar")
    assert number(first, "x") + number(first, "width") == pytest.approx(
        number(second, "x"), abs=0.02
    )
    assert number(second, "width") == pytest.approx(3 * number(first, "width"), abs=0.05)


def test_size_parts_follow_one_another() -> None:
    """Lengths are shares of the whole, and said; a part of nothing draws nothing."""
    svg = size_bars([("weights", 900), ("library", 100)])
    weights, library = drawn(svg, "bar")
    assert number(weights, "width") == pytest.approx(9 * number(library, "width"), abs=0.05)
    assert number(weights, "x") + number(weights, "width") == pytest.approx(
        number(library, "x"), abs=0.02
    )
    nb = "\N{NO-BREAK SPACE}"
    assert [t.text for t in drawn(svg, "value")] == [f"900 B, 90.0{nb}%", f"100 B, 10.0{nb}%"]
    assert size_bars([("weights", 0)]) == ""


@given(st.floats(1e-9, 1e9))
def test_ticks_are_few_and_round(top: float) -> None:
    """Any scale has three to nine ticks from zero on, none beyond its end."""
    ticks = list(Linear(top, 0, 100).ticks())
    assert 3 <= len(ticks) <= 9
    assert ticks[0] == 0
    assert ticks[-1] <= top * (1 + 1e-6)


@given(st.floats(min_value=1e-300, allow_infinity=False))
def test_a_log_scale_holds_everything(value: float) -> None:
    """Values beyond the ends stand at the ends, never outside the picture."""
    assert 10 <= Log(-8, -2, 10, 90)(value) <= 90


def test_long_names_keep_their_end() -> None:
    """Module paths differ at the end, so that is what stays."""
    assert cut("encoder.layers.11.attention.output", 90) == "…ntion.output"
    assert cut("logits", 90) == "logits"
