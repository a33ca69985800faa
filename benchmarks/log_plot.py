"""A plot on two logarithmic axes, as SVG."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from benchmarks.svg import Log, circle, line, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Point = tuple[float, float]

_WIDE, _HIGH, _EDGE, _ROOM = 760, 400, 60, 170  # the room right of the axes is for labels
_COLOURS = ("#b3402a", "#d98c4a", "#2a6fb3", "#6fa8dc", "#3d7a3d", "#8a5fa8")
_STYLE = "text { font: 12px sans-serif } .grid { stroke: #ddd }" + "".join(
    f" .c{number} {{ fill: {colour}; stroke: none }} line.c{number} {{ stroke: {colour}; "
    "stroke-width: 2 }"
    for number, colour in enumerate(_COLOURS)
)


def log_plot(series: Mapping[str, Sequence[Point]], *, across: str, up: str) -> str:
    """Draw each series as a line with dots and its name.

    Args:
        series: points by name, all coordinates positive; at most six series.
        across: what the horizontal axis counts.
        up: what the vertical axis counts.
    """
    points = [point for each in series.values() for point in each]
    left, right, top, bottom = _EDGE, _WIDE - _ROOM, _EDGE, _HIGH - _EDGE
    x = _scale([point[0] for point in points], left, right)
    y = _scale([point[1] for point in points], bottom, top)
    parts = []
    for power in x.decades():
        at = x(10.0**power)
        parts.append(line(at, top, at, bottom, "grid"))
        parts.append(text(at, bottom + 18, f"{10.0**power:,g}", anchor="middle"))
    for power in y.decades():
        at = y(10.0**power)
        parts.append(line(left, at, right, at, "grid"))
        parts.append(text(left - 6, at + 4, f"{10.0**power:,g}", anchor="end"))
    for number, (name, each) in enumerate(series.items()):
        style, placed = f"c{number}", [(x(a), y(b)) for a, b in each]
        parts += [line(*one, *other, style) for one, other in pairwise(placed)]
        parts += [circle(*point, 3, style) for point in placed]
        parts.append(text(placed[-1][0] + 8, placed[-1][1] + 4, name, style))
    parts.append(text((left + right) / 2, _HIGH - 12, across, anchor="middle"))
    parts.append(text(left, top - 20, up, anchor="middle"))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {_HIGH}">'
    ground = f'<rect width="{_WIDE}" height="{_HIGH}" fill="white"/>'
    return "\n".join([head, f"<style>{_STYLE}</style>", ground, *parts, "</svg>"]) + "\n"


def _scale(values: Sequence[float], start: float, end: float) -> Log:
    """Over the powers of ten around the values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return Log(low, max(high, low + 1), start, end)
