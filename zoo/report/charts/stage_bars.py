"""The way of a conversion: its stages one after another, to scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from zoo.report.charts.svg import WIDTH, Linear, cut, line, picture, rect, text
from zoo.report.numbers import seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zoo.records import StageTime

__all__ = ["stage_bars"]

_LABEL, _START, _END = 120, 132, WIDTH - 80
_TOP, _ROW, _BAR, _FOOT = 4, 26, 16, 42


def stage_bars(stages: Sequence[StageTime]) -> Markup:
    """Draws a row a stage, each beginning where the one before it ended."""
    total = sum(stage.seconds for stage in stages)
    if total <= 0:
        return Markup()
    axis = Linear(total, _START, _END)
    bottom = _TOP + _ROW * len(stages)
    body = [
        text((_START + _END) / 2, bottom + 34, "seconds since the start", "axis", anchor="middle")
    ]
    for tick in axis.ticks():
        body += [
            line(axis(tick), _TOP, axis(tick), bottom, "grid"),
            text(axis(tick), bottom + 15, f"{tick:g}", "tick", anchor="middle"),
        ]
    begun = 0.0
    for index, stage in enumerate(stages):
        y = _TOP + _ROW * index + (_ROW - _BAR) / 2
        x, end = axis(begun), axis(begun + stage.seconds)
        tip = f"{stage.stage}: {seconds(stage.seconds)}, {100 * stage.seconds / total:.0f} %"
        body += [
            text(_LABEL, y + 12, cut(stage.stage, _LABEL), "label", anchor="end"),
            rect(x, y, max(end - x, 2), _BAR, "bar", tip=tip, round_=3),
            text(max(end, x + 2) + 7, y + 12, seconds(stage.seconds), "value"),
        ]
        begun += stage.seconds
    description = ", ".join(f"{s.stage} {seconds(s.seconds)}" for s in stages)
    return picture(bottom + _FOOT, "Time of each stage", description, body)
