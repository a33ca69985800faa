"""Places boxes in layers, producers above their users.

The steps are Sugiyama's ("Methods for visual understanding of hierarchical system structures",
1981): layers by longest path, stand-ins where an edge crosses a layer, an order in each layer that
follows the neighbours' centres, then coordinates that straighten the edges.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Layout", "Place", "lay_out"]

_GAP_X, _GAP_Y = 26.0, 34.0
_LANE = 4.0  # width of the lane that an edge takes through a layer, and the gap beside it
_SWEEPS = 12


@dataclass(frozen=True)
class Place:
    """Upper left corner and size of a box, in user units."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Layout:
    """Where each box lies, and the points that each edge (from, to) runs through, downwards."""

    places: tuple[Place, ...]
    edges: dict[tuple[int, int], tuple[tuple[float, float], ...]]
    width: float
    height: float


@dataclass
class _Cell:
    """A box, or the lane of an edge, within a layer."""

    layer: int
    width: float
    height: float = 0.0
    above: list[int] = field(default_factory=list)
    below: list[int] = field(default_factory=list)
    centre: float = 0.0

    @property
    def is_lane(self) -> bool:
        """Whether an edge runs through here, and no box stands."""
        return self.height == 0


def lay_out(sizes: Sequence[tuple[float, float]], inputs: Sequence[Sequence[int]]) -> Layout:
    """Lay out boxes.

    Args:
        sizes: width and height of each box.
        inputs: for each box the indices of those that feed it, all smaller than its own.
    """
    layers = _layers(inputs)
    cells = [_Cell(layers[i], w, h) for i, (w, h) in enumerate(sizes)]
    paths = _lanes(cells, inputs)
    rows: list[list[int]] = [[] for _ in range(max(layers, default=-1) + 1)]
    for index, cell in enumerate(cells):
        rows[cell.layer].append(index)
    for row in rows:
        _pack(cells, row)
    for sweep in range(_SWEEPS):
        _sweep(cells, rows, downwards=sweep % 2 == 0)
    tops, height = _tops(cells, rows)
    left = min((c.centre - c.width / 2 for c in cells), default=0.0)
    right = max((c.centre + c.width / 2 for c in cells), default=0.0)
    places = tuple(
        Place(c.centre - c.width / 2 - left, tops[c.layer], c.width, c.height)
        for c in cells[: len(sizes)]
    )
    edges = {ends: _points(cells, path, tops, rows, left) for ends, path in paths.items()}
    return Layout(places, edges, right - left, height)


def _layers(inputs: Sequence[Sequence[int]]) -> list[int]:
    """Longest path from above; what has no input stands just above its first user."""
    layers: list[int] = []
    for sources in inputs:
        layers.append(max((layers[s] + 1 for s in sources), default=0))
    for index, sources in enumerate(inputs):
        users = [layers[u] for u, needs in enumerate(inputs) if index in needs]
        if not sources and users:
            layers[index] = max(0, min(users) - 1)
    return layers


def _lanes(cells: list[_Cell], inputs: Sequence[Sequence[int]]) -> dict[tuple[int, int], list[int]]:
    """Add lanes in the layers that edges cross; return the cells along each edge.

    Edges of one source share its lanes, and part where their users are.
    """
    paths: dict[tuple[int, int], list[int]] = {}
    lanes: dict[tuple[int, int], int] = {}  # of a source in a layer
    for user, sources in enumerate(inputs):
        for source in sources:
            path = [source]
            for layer in range(cells[source].layer + 1, cells[user].layer):
                if (source, layer) not in lanes:
                    cells.append(_Cell(layer, _LANE))
                    lanes[source, layer] = len(cells) - 1
                path.append(lanes[source, layer])
            path.append(user)
            for upper, lower in pairwise(path):
                if lower not in cells[upper].below:
                    cells[upper].below.append(lower)
                    cells[lower].above.append(upper)
            paths[source, user] = path
    return paths


def _pack(cells: Sequence[_Cell], row: Sequence[int]) -> None:
    """Place a layer's cells side by side around zero."""
    total = sum(cells[i].width for i in row) + _GAP_X * (len(row) - 1)
    x = -total / 2
    for index in row:
        cells[index].centre = x + cells[index].width / 2
        x += cells[index].width + _GAP_X


def _sweep(cells: Sequence[_Cell], rows: Sequence[list[int]], *, downwards: bool) -> None:
    """Order and move each layer's cells towards their neighbours in the layer before."""
    for row in rows if downwards else reversed(rows):
        wished = {i: _wish(cells, i, downwards=downwards) for i in row}
        row.sort(key=lambda i: (wished[i], i))
        _settle(cells, row, [wished[i] for i in row])


def _wish(cells: Sequence[_Cell], index: int, *, downwards: bool) -> float:
    cell = cells[index]
    neighbours = cell.above if downwards else cell.below
    if not neighbours:
        return cell.centre
    # Boxes follow boxes and lanes follow lanes, where there are such: both run straight then.
    neighbours = [n for n in neighbours if cells[n].is_lane == cell.is_lane] or neighbours
    return sum(cells[n].centre for n in neighbours) / len(neighbours)


def _settle(cells: Sequence[_Cell], row: Sequence[int], wished: Sequence[float]) -> None:
    """As near to the wishes as the widths allow: the mean of a push to the right and one left.

    Then all move by as much, so that the boxes are on the average where they wish to be: else every
    lane that begins would push the boxes below a little further to one side.
    """
    to_right, to_left = list(wished), list(wished)
    for k in range(1, len(row)):
        to_right[k] = max(to_right[k], to_right[k - 1] + _apart(cells, row[k - 1], row[k]))
    for k in range(len(row) - 2, -1, -1):
        to_left[k] = min(to_left[k], to_left[k + 1] - _apart(cells, row[k], row[k + 1]))
    off = [w - (a + b) / 2 for w, a, b in zip(wished, to_right, to_left, strict=True)]
    boxes = [o for o, i in zip(off, row, strict=True) if not cells[i].is_lane] or off
    shift = sum(boxes) / len(boxes)
    for index, a, b in zip(row, to_right, to_left, strict=True):
        cells[index].centre = (a + b) / 2 + shift


def _apart(cells: Sequence[_Cell], left: int, right: int) -> float:
    lane = cells[left].is_lane or cells[right].is_lane
    return (cells[left].width + cells[right].width) / 2 + (_LANE if lane else _GAP_X)


def _tops(cells: Sequence[_Cell], rows: Sequence[Sequence[int]]) -> tuple[list[float], float]:
    """The upper edge of every layer, and the lower edge of the last."""
    tops, y = [], 0.0
    for row in rows:
        tops.append(y)
        y += max(cells[i].height for i in row) + _GAP_Y
    return tops, max(0.0, y - _GAP_Y)


def _points(
    cells: Sequence[_Cell],
    path: Sequence[int],
    tops: Sequence[float],
    rows: Sequence[Sequence[int]],
    left: float,
) -> tuple[tuple[float, float], ...]:
    """From the lower edge of the first cell, straight through the lanes, to the last's upper."""
    first, *lanes, last = (cells[i] for i in path)
    points = [(first.centre - left, tops[first.layer] + first.height)]
    for lane in lanes:
        x, top = lane.centre - left, tops[lane.layer]
        bottom = top + max(cells[i].height for i in rows[lane.layer])
        points += [(x, top), (x, bottom)]
    points.append((last.centre - left, tops[last.layer]))
    return tuple(points)
