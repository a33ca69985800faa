"""A handful of SVG elements, every attribute and text escaped, and two scales.

Colours come from the page's CSS by class name, so that pictures follow light, dark and print.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = [
    "WIDTH",
    "Linear",
    "Log",
    "circle",
    "cross",
    "cut",
    "group",
    "line",
    "path",
    "picture",
    "rect",
    "scale_marks",
    "text",
    "tooltip",
]

WIDTH = 880  # user units of every picture; CSS scales it to the column
_CHARACTER = 6.6  # width of one character of a label at its 12 units of height


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _element(tag: str, attributes: Mapping[str, float | str], content: Markup | str = "") -> Markup:
    parts = [
        Markup(' {}="{}"').format(name, value if isinstance(value, str) else _number(value))
        for name, value in attributes.items()
        if value != ""
    ]
    start = Markup("<{}{}").format(Markup(tag), Markup("").join(parts))  # noqa: S704 - our own tag
    return start + Markup(">") + escape(content) + Markup("</{}>").format(Markup(tag))  # noqa: S704


def picture(
    style: str,
    size: tuple[float, float],
    title: str,
    description: str,
    body: Iterable[Markup],
    *,
    fixed: bool = False,
) -> Markup:
    """A whole picture, with a name and a description for those who cannot see it.

    Args:
        style: its class.
        size: width and height in user units.
        title: its name.
        description: what it shows, in words.
        body: the elements.
        fixed: whether it is as large as its units say, not as wide as its column.
    """
    width, height = map(_number, size)
    inner = Markup("").join(
        [_element("title", {}, title), _element("desc", {}, description), *body]
    )
    attributes = {"class": style, "role": "img", "viewBox": f"0 0 {width} {height}"}
    measures = {"width": width, "height": height} if fixed else {}
    return _element("svg", attributes | measures, inner)


def group(x: float, y: float, body: Iterable[Markup], *, tip: str = "") -> Markup:
    """Elements moved together, with a tooltip when `tip` is given."""
    shift = f"translate({_number(x)} {_number(y)})"
    return _element("g", {"transform": shift}, Markup("").join([tooltip(tip), *body]))


def path(steps: str, style: str, *, tip: str = "") -> Markup:
    """Any line or area, by the commands of SVG's path data."""
    return _element("path", {"d": steps, "class": style}, tooltip(tip))


def rect(
    x: float, y: float, width: float, height: float, style: str, *, tip: str = "", round_: float = 2
) -> Markup:
    """A rectangle, with a tooltip when `tip` is given."""
    attributes: dict[str, float | str] = {
        "x": x,
        "y": y,
        "width": max(0.0, width),
        "height": height,
        "rx": round_,
        "class": style,
    }
    return _element("rect", attributes, tooltip(tip))


def circle(x: float, y: float, radius: float, style: str, *, tip: str = "") -> Markup:
    """A dot."""
    return _element("circle", {"cx": x, "cy": y, "r": radius, "class": style}, tooltip(tip))


def cross(x: float, y: float, radius: float, style: str, *, tip: str = "") -> Markup:
    """A diagonal cross, for what failed: it is told from a dot without its colour."""
    left, d = _number(x - radius), _number(2 * radius)
    steps = f"M{left} {_number(y - radius)}l{d} {d}M{left} {_number(y + radius)}l{d} -{d}"
    return path(steps, style, tip=tip)


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> Markup:
    """A straight line."""
    return _element("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "class": style})


def text(x: float, y: float, content: str, style: str = "", *, anchor: str = "") -> Markup:
    """A line of text; `anchor` is start (the default), middle or end."""
    return _element("text", {"x": x, "y": y, "class": style, "text-anchor": anchor}, content)


def scale_marks(
    ticks: Iterable[tuple[float, str]], top: float, bottom: float, caption: str
) -> Iterator[Markup]:
    """The grid and numbers of a horizontal scale, from `top` to `bottom`, and what it counts."""
    places = []
    for x, words in ticks:
        places.append(x)
        if top < bottom:
            yield line(x, top, x, bottom, "grid")
        yield text(x, bottom + 18, words, "tick", anchor="middle")
    middle = (places[0] + places[-1]) / 2
    yield text(middle, bottom + 38, caption, "axis", anchor="middle")


def tooltip(content: str) -> Markup:
    """What browsers show on hover and readers read out; nothing for an empty string."""
    return _element("title", {}, content) if content else Markup()


def cut(content: str, width: float) -> str:
    """Shortens a label to about so many units, keeping its end, where names differ."""
    room = max(4, int(width / _CHARACTER))
    return content if len(content) <= room else "…" + content[-(room - 1) :]


@dataclass(frozen=True)
class Linear:
    """Maps [0, top] to [start, end] and knows round ticks."""

    top: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where a value lies, in user units."""
        return self.start + (self.end - self.start) * value / self.top

    def ticks(self) -> Iterator[float]:
        """Four to eight multiples of 1, 2, 2.5 or 5 times a power of ten, zero among them."""
        rough = self.top / 6
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= rough)
        for index in range(math.floor(self.top / step + 1e-9) + 1):
            yield index * step


@dataclass(frozen=True)
class Log:
    """Maps [10^low, 10^high] to [start, end]; values outside are held at the ends."""

    low: int
    high: int
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where a positive value lies, in user units."""
        exponent = min(float(self.high), max(float(self.low), math.log10(value)))
        return self.start + (self.end - self.start) * (exponent - self.low) / (self.high - self.low)

    def decades(self) -> range:
        """The exponents that deserve a tick: at most about twelve."""
        return range(self.low, self.high + 1, 1 + (self.high - self.low) // 13)
