"""The artifact's latency beside eager PyTorch's, program by program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from zoo.report.charts.svg import WIDTH, Linear, cut, line, picture, rect, text
from zoo.report.numbers import count, milliseconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zoo.records import Measurement
    from zoo.report.summary import Latencies

__all__ = ["latency_bars"]

_LABEL, _START, _END = 180, 190, WIDTH - 90
_TOP, _BAR, _GROUP, _FOOT = 8, 18, 58, 44


def _bar(name: str, measured: Measurement, axis: Linear, y: float, style: str) -> list[Markup]:
    """One bar to the median, a whisker from the minimum to the 90th percentile, the number."""
    middle = y + _BAR / 2
    tip = (
        f"{name}: median {milliseconds(measured.median_ms)}, minimum "
        f"{milliseconds(measured.minimum_ms)}, 90th percentile {milliseconds(measured.p90_ms)}, "
        f"{count(measured.runs, 'run')}, {count(measured.threads, 'thread')}"
    )
    low, high = axis(measured.minimum_ms), axis(measured.p90_ms)
    return [
        rect(_START, y, axis(measured.median_ms) - _START, _BAR, style, tip=tip, round_=3),
        line(low, middle, high, middle, "whisker"),
        line(low, middle - 4, low, middle + 4, "whisker"),
        line(high, middle - 4, high, middle + 4, "whisker"),
        text(
            max(high, axis(measured.median_ms)) + 8,
            middle + 4,
            milliseconds(measured.median_ms),
            "value",
        ),
    ]


def _frame(axis: Linear, bottom: float) -> list[Markup]:
    marks = [
        text(
            (_START + _END) / 2,
            bottom + 36,
            "latency of one call, milliseconds",
            "axis",
            anchor="middle",
        )
    ]
    for tick in axis.ticks():
        marks += [
            line(axis(tick), _TOP, axis(tick), bottom, "grid"),
            text(axis(tick), bottom + 16, f"{tick:g}", "tick", anchor="middle"),
        ]
    return marks


def latency_bars(times: Sequence[Latencies]) -> Markup:
    """Draws a pair of bars a program: the artifact above, eager PyTorch below where measured."""
    shown = [t for t in times if t.artifact is not None]
    longest = max(
        (m.p90_ms for t in shown for m in (t.artifact, t.eager) if m is not None), default=0.0
    )
    if longest <= 0:
        return Markup()
    axis = Linear(longest * 1.04, _START, _END)
    bottom = _TOP + _GROUP * len(shown)
    body = _frame(axis, bottom)
    for index, program in enumerate(shown):
        y = _TOP + _GROUP * index + 8
        body.append(text(0, y + 15, cut(program.program, 90), "label"))
        for name, measured, style in (
            ("artifact", program.artifact, "bar"),
            ("eager", program.eager, "bar-hollow"),
        ):
            if measured is not None:
                body.append(text(_LABEL, y + 13, name, "tick", anchor="end"))
                body += _bar(name, measured, axis, y, style)
            y += _BAR + 4
    body.append(line(_START, _TOP, _START, bottom, "rule"))
    description = "; ".join(
        f"{t.program}: artifact {milliseconds(t.artifact.median_ms)}"
        + (f", eager {milliseconds(t.eager.median_ms)}" if t.eager else "")
        for t in shown
        if t.artifact is not None
    )
    return picture(bottom + _FOOT, "Latency against eager", description, body)
