"""A handful of SVG elements, every attribute and text escaped, and a logarithmic scale."""

from __future__ import annotations

import math
from dataclasses import dataclass

from markupsafe import Markup, escape


def _element(tag: str, style: str, content: str = "", **attributes: float | str) -> Markup:
    given = {"class": style, **{k.replace("_", "-"): v for k, v in attributes.items()}}
    shown = {k: v if isinstance(v, str) else f"{v:.2f}" for k, v in given.items() if v != ""}
    parts = "".join(f' {name}="{escape(value)}"' for name, value in shown.items())
    return Markup(f"<{tag}{parts}>{escape(content)}</{tag}>")  # noqa: S704 - escaped above


def rect(x: float, y: float, width: float, height: float, style: str) -> Markup:
    """A rectangle."""
    return _element("rect", style, x=x, y=y, width=max(0.0, width), height=height, rx=2.0)


def circle(x: float, y: float, radius: float, style: str) -> Markup:
    """A dot."""
    return _element("circle", style, cx=x, cy=y, r=radius)


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> Markup:
    """A straight line."""
    return _element("line", style, x1=x1, y1=y1, x2=x2, y2=y2)


def text(x: float, y: float, content: str, style: str = "", *, anchor: str = "") -> Markup:
    """A line of text; `anchor` is start (the default), middle or end."""
    return _element("text", style, content, x=x, y=y, text_anchor=anchor)


@dataclass(frozen=True)
class Log:
    """Maps [10^low, 10^high] to [start, end]."""

    low: int
    high: int
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The place of a positive value, in user units."""
        return self.start + (self.end - self.start) * (math.log10(value) - self.low) / (
            self.high - self.low
        )

    def decades(self) -> range:
        """The exponents that deserve a tick: at most about twelve."""
        return range(self.low, self.high + 1, 1 + (self.high - self.low) // 13)
