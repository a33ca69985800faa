"""Sizes, parity and latency of a model over its releases, as pictures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from markupsafe import Markup

from menagerie.figures import decibels, moment, size
from zoo.report.svg import WIDTH, Linear, circle, line, path, picture, text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from zoo.catalogue.records import CataloguedRelease, History

__all__ = ["plots"]

_HEIGHT, _LEFT, _TOP, _FOOT = 150.0, 70.0, 14.0, 26.0
_EXACT_DB = 200.0  # where equal bits are drawn; float32 reaches some 150


def plots(history: History) -> list[tuple[str, Markup]]:
    """A name and a picture for each figure that two releases or more have."""
    drawn = [
        ("Size of all files", _drawn(history, "Size", _size, lambda v: size(round(v)))),
        ("Lowest signal-to-noise ratio", _drawn(history, "Lowest SNR", _snr, _ratio)),
        ("Time over eager PyTorch's", _drawn(history, "Time over eager's", _time, _times)),
    ]
    return [(name, drawing) for name, drawing in drawn if drawing]


def _size(release: CataloguedRelease) -> float | None:
    return release.bytes


def _snr(release: CataloguedRelease) -> float | None:
    if release.snr_db is None or math.isnan(release.snr_db):
        return None
    return min(max(release.snr_db, 0.0), _EXACT_DB)


def _time(release: CataloguedRelease) -> float | None:
    return release.ratio


def _ratio(value: float) -> str:
    return decibels(math.inf if value >= _EXACT_DB else value)


def _times(value: float) -> str:
    return f"{value:.2f}"


def _drawn(
    history: History,
    title: str,
    value_of: Callable[[CataloguedRelease], float | None],
    written: Callable[[float], str],
) -> Markup:
    """A dot a release from the first to the last, joined; nothing where there are not two."""
    points = [(r, v) for r in history.releases if (v := value_of(r)) is not None]
    if len(points) < 2:  # noqa: PLR2004 - a line has two ends
        return Markup()
    top = max(value for _, value in points) * 1.1 or 1.0
    scale = Linear(top, _TOP + _HEIGHT, _TOP)
    step = (WIDTH / 2 - _LEFT - 20) / (len(points) - 1)
    places = [(_LEFT + step * i, scale(value)) for i, (_, value) in enumerate(points)]
    body = [*_grid(scale, written), path(_joined(places), "trend")]
    for (x, y), (release, value) in zip(places, points, strict=True):
        style = "mark-bad" if release.retracted else "mark"
        tip = f"{release.build_key[:12]}, {moment(release.when)}: {written(value)}"
        body.append(circle(x, y, 5, style, tip=tip))
    said = f"From {written(points[0][1])} to {written(points[-1][1])} over {len(points)} releases."
    return picture("chart", (WIDTH / 2, _TOP + _HEIGHT + _FOOT), title, said, body)


def _grid(scale: Linear, written: Callable[[float], str]) -> list[Markup]:
    marks = []
    for tick in list(scale.ticks())[::2]:
        y = scale(tick)
        marks += [line(_LEFT, y, WIDTH / 2, y, "grid")]
        marks += [text(_LEFT - 8, y + 4, written(tick) if tick else "0", "tick", anchor="end")]
    return marks


def _joined(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
