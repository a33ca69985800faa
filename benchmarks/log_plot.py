"""A plot on two logarithmic axes, as SVG."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["log_plot"]

Point = tuple[float, float]

_WIDE, _HIGH, _EDGE, _ROOM = 760, 400, 60, 170  # the room right of the axes is for labels
_COLOURS = ("#b3402a", "#d98c4a", "#2a6fb3", "#6fa8dc", "#3d7a3d", "#8a5fa8")


def log_plot(series: Mapping[str, Sequence[Point]], *, across: str, up: str) -> str:
    """Draw each series as a line with dots and its name.

    Args:
        series: points by name, all coordinates positive; at most six series.
        across: what the horizontal axis counts.
        up: what the vertical axis counts.
    """
    points = [point for line in series.values() for point in line]
    decades = [_decades([point[axis] for point in points]) for axis in (0, 1)]

    def place(x: float, y: float) -> Point:
        right = (math.log10(x) - decades[0].start) / (len(decades[0]) - 1)
        over = (math.log10(y) - decades[1].start) / (len(decades[1]) - 1)
        width, height = _WIDE - _EDGE - _ROOM, _HIGH - 2 * _EDGE
        return _EDGE + right * width, _HIGH - _EDGE - over * height

    left, bottom = place(10.0 ** decades[0].start, 10.0 ** decades[1].start)
    parts = []
    for power in decades[0]:
        x, _ = place(10.0**power, 1)
        parts.append(f'<path d="M{x:.0f} {_EDGE}V{bottom:.0f}" stroke="#ddd"/>')
        parts.append(_text(x, bottom + 18, f"{10.0**power:,g}", "middle"))
    for power in decades[1]:
        _, y = place(1, 10.0**power)
        parts.append(f'<path d="M{left:.0f} {y:.0f}H{_WIDE - _ROOM}" stroke="#ddd"/>')
        parts.append(_text(left - 6, y + 4, f"{10.0**power:,g}", "end"))
    for (name, line), colour in zip(series.items(), _COLOURS, strict=False):
        parts += _line(name, [place(*point) for point in line], colour)
    parts.append(_text((_EDGE + _WIDE - _ROOM) / 2, _HIGH - 12, across, "middle"))
    parts.append(_text(_EDGE, _EDGE - 20, up, "middle"))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {_HIGH}">'
    style = "<style>text { font: 12px sans-serif }</style>"
    ground = f'<rect width="{_WIDE}" height="{_HIGH}" fill="white"/>'
    return "\n".join([head, style, ground, *parts, "</svg>"]) + "\n"


def _decades(values: Sequence[float]) -> range:
    """The powers of ten around the values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return range(low, max(high, low + 1) + 1)


def _line(name: str, points: Sequence[Point], colour: str) -> list[str]:
    way = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    drawn = [f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="2"/>']
    drawn += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    x, y = points[-1]
    return [*drawn, _text(x + 8, y + 4, name, "start", colour)]


def _text(x: float, y: float, text: str, anchor: str, colour: str = "black") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{colour}">{text}</text>'
