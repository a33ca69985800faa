"""Where each output of each golden case lies between exact and its tolerance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from zoo.report.charts.svg import Log, circle, cross, cut, line, picture, rect, text
from zoo.report.numbers import decibels, error, scientific

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zoo.records import OutputParity

__all__ = ["OutputCases", "error_dots"]

_MOST_ROWS = 24
_LABEL = 190  # left column, for names
_EXACT = 212  # centre of the column for exact outputs
_START, _END = 268, 800  # the logarithmic axis
_INFINITE = 836  # centre of the column for what is not a finite error
_TOP, _ROW, _FOOT = 34, 30, 46


@dataclass(frozen=True)
class OutputCases:
    """All golden cases of one output."""

    name: str
    cases: Sequence[OutputParity]

    @property
    def worst(self) -> float:
        """The largest max abs error of its cases, failed ones before passed ones."""
        return max(math.inf if not p.passed else p.max_abs for p in self.cases)


def _axis(outputs: Sequence[OutputCases]) -> Log:
    """A scale that holds every error and every tolerance, with a decade to spare."""
    values = [p.max_abs for output in outputs for p in output.cases]
    values += [p.allowed for o in outputs for p in o.cases if p.allowed is not None]
    shown = [math.log10(v) for v in values if 0 < v < math.inf] or [-6.0, -4.0]
    return Log(math.floor(min(shown)) - 1, math.ceil(max(shown)) + 1, _START, _END)


def _mark(parity: OutputParity, axis: Log, y: float) -> Markup:
    tip = (
        f"case {parity.case}: max abs error {error(parity.max_abs)}, SNR {decibels(parity.snr_db)}"
    )
    if not parity.passed:
        finite = math.isfinite(parity.max_abs) and parity.nonfinite_match and parity.max_abs > 0
        x = axis(parity.max_abs) if finite else float(_INFINITE)
        return cross(x, y, 6, "mark-bad", tip=f"{tip}; failed")
    x = axis(parity.max_abs) if parity.max_abs > 0 else float(_EXACT)
    return circle(x, y, 6, "mark", tip=tip)


def _row(output: OutputCases, axis: Log, y: float) -> list[Markup]:
    marks = [
        text(_LABEL, y + 4, cut(output.name, _LABEL), "label", anchor="end"),
        line(_EXACT - 14, y, _INFINITE + 14, y, "rule"),
    ]
    allowed = [p.allowed for p in output.cases if p.allowed is not None]
    if allowed:
        x = axis(min(allowed))
        marks += [
            rect(_EXACT - 14, y - 11, x - _EXACT + 14, 22, "allowed", round_=4),
            line(x, y - 13, x, y + 13, "limit"),
        ]
    return marks + [_mark(parity, axis, y) for parity in output.cases]


def _scale(axis: Log, bottom: float) -> list[Markup]:
    marks = [
        text(_EXACT, bottom + 18, "exact", "tick", anchor="middle"),
        text(_INFINITE, bottom + 18, "∞", "tick", anchor="middle"),
        text(
            (_START + _END) / 2,
            bottom + 38,
            "max abs error, in the output's own units",
            "axis",
            anchor="middle",
        ),
    ]
    for exponent in axis.decades():
        x = axis(10.0**exponent)
        marks += [
            line(x, _TOP - 8, x, bottom, "grid"),
            text(x, bottom + 18, scientific(10.0**exponent), "tick", anchor="middle"),
        ]
    return marks


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


def error_dots(outputs: Sequence[OutputCases]) -> Markup:
    """Draws one row an output, one mark a case, on a logarithmic scale of the max abs error.

    The worst 24 outputs are drawn when there are more; the table has all.
    """
    shown = sorted(outputs, key=lambda o: o.worst, reverse=True)[:_MOST_ROWS]
    shown = [o for o in outputs if o in shown]
    if not shown:
        return Markup()
    axis = _axis(shown)
    bottom = _TOP + _ROW * len(shown)
    body = _legend() + _scale(axis, bottom)
    for index, output in enumerate(shown):
        body += _row(output, axis, _TOP + _ROW * (index + 0.5))
    failed = sum(not p.passed for output in outputs for p in output.cases)
    description = (
        f"Largest absolute error of {len(shown)} of {len(outputs)} outputs over all golden cases; "
        f"{failed} of {sum(len(o.cases) for o in outputs)} comparisons failed."
    )
    return picture(bottom + _FOOT, "Error of every output against eager", description, body)
