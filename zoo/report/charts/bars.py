"""Bars on a common scale: latencies, stages and sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from menagerie.figures import count, milliseconds, percent, seconds, size
from menagerie.profile import short_name
from zoo.report.svg import WIDTH, Linear, cut, line, picture, rect, scale_marks, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from menagerie.validation.findings import Profile
    from zoo.records import Measurement, StageTime
    from zoo.report.summary import Latencies

__all__ = ["kernel_bars", "latency_bars", "size_bars", "stage_bars"]

_LABEL, _START, _END = 180, 190, WIDTH - 130  # the room at the right is for the values
_KERNEL = 26  # characters of a kernel's name
_ROW, _BAR, _BETWEEN, _FOOT = 24, 17, 10, 44


@dataclass(frozen=True)
class _Bar:
    """One bar, from `start` to `end` on the scale of the picture.

    Attributes:
        name: stands left of it.
        start: where it begins.
        end: where it ends.
        value: what is written behind it.
        tip: what more there is to say.
        style: its class.
        heading: of the bars that begin with this one.
        whisker: a range that is drawn over it.
    """

    name: str
    start: float
    end: float
    value: str
    tip: str
    style: str = "bar"
    heading: str = ""
    whisker: tuple[float, float] | None = None


def latency_bars(times: Sequence[Latencies]) -> Markup:
    """Draws a pair of bars a program: the artifact above, eager PyTorch below where measured.

    A bar ends at the median; its whisker goes from the minimum to the 90th percentile.
    """
    bars = []
    for one in times:
        heading = one.program
        for name, measured, style in (
            ("artifact", one.artifact, "bar"),
            ("eager", one.eager if one.artifact else None, "bar-hollow"),
        ):
            if measured is not None:
                bars.append(_latency_bar(name, measured, style, heading))
                heading = ""
    description = "; ".join(
        f"{t.program}: artifact {milliseconds(t.artifact.median_ms)}"
        + (f", eager {milliseconds(t.eager.median_ms)}" if t.eager else "")
        for t in times
        if t.artifact is not None
    )
    caption = "latency of one call, milliseconds"
    return _drawn("Latency against eager", description, caption, bars)


def _latency_bar(name: str, measured: Measurement, style: str, heading: str) -> _Bar:
    median, low, high = measured.median_ms, measured.minimum_ms, measured.p90_ms
    tip = (
        f"{name}: median {milliseconds(median)}, minimum {milliseconds(low)}, "
        f"90th percentile {milliseconds(high)}, {count(measured.runs, 'run')}, "
        f"{count(measured.threads, 'thread')}"
    )
    return _Bar(name, 0.0, median, milliseconds(median), tip, style, heading, (low, high))


def kernel_bars(profile: Profile, most: int) -> Markup:
    """Draws a row a kernel, the longest ones: milliseconds of a run, and what its roofline allows.

    The whisker begins at the least time that the machine's peaks allow.
    """
    bars = []
    for kernel in profile.kernels[:most]:
        took = kernel.milliseconds / profile.runs
        least = min(1.0, profile.of_roofline(kernel)) * took
        value = f"{milliseconds(took)}, {percent(profile.share(kernel))}"
        name = short_name(kernel)
        tip = f"{name}: {value}; the roofline allows {milliseconds(least)}"
        bars.append(_Bar(_within(name), 0.0, took, value, tip, whisker=(least, took)))
    description = ", ".join(f"{bar.name} {bar.value}" for bar in bars)
    return _drawn("Longest kernels", description, "milliseconds of a run", bars)


def _within(name: str) -> str:
    """A kernel's name in the room for labels: its begin, and the sizes at its end."""
    half = _KERNEL // 2
    return name if len(name) <= _KERNEL else f"{name[:half]}…{name[-half:]}"


def stage_bars(stages: Sequence[StageTime]) -> Markup:
    """Draws a row a stage, each beginning where the one before it ended."""
    bars = _in_succession(((s.stage, s.seconds) for s in stages), seconds)
    description = ", ".join(f"{s.stage} {seconds(s.seconds)}" for s in stages)
    return _drawn("Time of each stage", description, "seconds since the start", bars)


def size_bars(parts: Sequence[tuple[str, int]]) -> Markup:
    """Draws a row a part of the artifact, name and bytes, each beginning where the last ended."""
    bars = _in_succession(parts, lambda value: size(round(value)))
    total = f"{size(sum(amount for _, amount in parts))} in all."
    return _drawn("Size of the artifact", total, "megabytes", bars, unit=1e6)


def _in_succession(
    parts: Iterable[tuple[str, float]], written: Callable[[float], str]
) -> list[_Bar]:
    """A bar a part, where the one before it ends; with its share of the whole."""
    parts = list(parts)
    total, start, bars = sum(amount for _, amount in parts), 0.0, []
    for name, amount in parts:
        share = percent(amount / total) if total else ""
        tip = f"{name}: {written(amount)}, {share}"
        bars.append(_Bar(name, start, start + amount, f"{written(amount)}, {share}", tip))
        start += amount
    return bars


def _drawn(
    title: str, description: str, caption: str, bars: Sequence[_Bar], *, unit: float = 1.0
) -> Markup:
    """The picture, its scale counted in `unit`; nothing where all bars are empty."""
    longest = max((max(bar.end, *(bar.whisker or (0.0,))) for bar in bars), default=0.0)
    if longest <= 0:
        return Markup()
    axis = Linear(longest / unit * 1.02, _START, _END)
    bottom = _ROW * len(bars) + _BETWEEN * sum(bool(bar.heading) for bar in bars)
    ticks = ((axis(tick), f"{tick:g}") for tick in axis.ticks())
    body = [*scale_marks(ticks, 0, bottom, caption), line(_START, 0, _START, bottom, "rule")]
    y = 0.0
    for bar in bars:
        y += _BETWEEN * bool(bar.heading)
        body += _marks(bar, axis, unit, y + (_ROW - _BAR) / 2)
        y += _ROW
    return picture("chart", (WIDTH, bottom + _FOOT), title, description, body)


def _marks(bar: _Bar, axis: Linear, unit: float, y: float) -> Iterator[Markup]:
    start, end, middle = axis(bar.start / unit), axis(bar.end / unit), y + _BAR / 2
    if bar.heading:
        yield text(0, middle + 4, cut(bar.heading, 110), "label")
    style = "tick" if bar.whisker else "label"
    yield text(_LABEL, middle + 4, cut(bar.name, _LABEL), style, anchor="end")
    yield rect(start, y, max(end - start, 2), _BAR, bar.style, tip=bar.tip, round_=3)
    right = max(end, start + 2)
    if bar.whisker:
        low, high = (axis(value / unit) for value in bar.whisker)
        yield line(low, middle, high, middle, "whisker")
        yield line(low, middle - 4, low, middle + 4, "whisker")
        yield line(high, middle - 4, high, middle + 4, "whisker")
        right = max(right, high)
    yield text(right + 7, middle + 4, bar.value, "value")
