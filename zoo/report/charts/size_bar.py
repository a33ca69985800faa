"""What the artifact's bytes are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from zoo.report.charts.svg import WIDTH, cut, picture, rect, text
from zoo.report.numbers import size

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["size_bar"]

_STYLES = ("part-0", "part-1", "part-2", "part-3", "part-4")
_BAR, _ROW = 34, 24


def size_bar(parts: Sequence[tuple[str, int]]) -> Markup:
    """Draws one bar, divided by bytes, and a line a part with its share.

    Args:
        parts: name and bytes, in the order in which they are drawn.
    """
    total = sum(amount for _, amount in parts)
    if total <= 0:
        return Markup()
    body: list[Markup] = []
    x = 0.0
    for index, (name, amount) in enumerate(parts):
        style = _STYLES[index % len(_STYLES)]
        width = WIDTH * amount / total
        tip = f"{name}: {size(amount)}, {100 * amount / total:.1f} %"
        body.append(rect(x, 0, max(width - 2, 1.5), _BAR, style, tip=tip, round_=3))
        x += width
        y = _BAR + _ROW * (index + 1)
        body += [
            rect(0, y - 11, 12, 12, style),
            text(22, y, cut(name, 420), "label"),
            text(560, y, size(amount), "value", anchor="end"),
            text(650, y, f"{100 * amount / total:.1f} %", "tick", anchor="end"),
        ]
    height = _BAR + _ROW * len(parts) + 12
    return picture(height, "Size of the artifact", f"{size(total)} in all.", body)
