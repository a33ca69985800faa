"""Detection of faces by three networks in a row (MTCNN: Zhang, Zhang, Li and Qiao 2016).

Boxes are rows of left, top, right and bottom in pixels. The constants are those of facenet-pytorch,
which took them from the authors' program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from menagerie.uses import BoxesHead

    Array = NDArray[np.float32]
    Call = Callable[[Mapping[str, NDArray[np.float32]]], Mapping[str, NDArray[np.float32]]]

LEAST_SIDE, _STRIDE = 12, 2  # pixels: a proposal's window, and its stride
_MIDDLE, _LARGE = 24, 48  # input sizes of the other networks, in pixels
_ALIKE_IN_SCALE, _ALIKE = 0.5, 0.7  # shares of overlap above which a box is dropped
_AT_ONCE = 64  # boxes per call


def find_boxes(picture: NDArray[np.uint8], head: BoxesHead, calls: Mapping[str, Call]) -> Array:
    """Return a row with the box and its probability for each face in (high, wide, 3) RGB."""
    pixels = picture.astype(np.float32)
    boxes = _proposed(pixels, head, calls)
    for name, size, least in (
        (head.refinement, _MIDDLE, head.thresholds[1]),
        (head.output, _LARGE, head.thresholds[2]),
    ):
        squares = _squares(boxes)
        cuts, squares = _cut(pixels, squares, size)
        if not len(cuts):
            return np.empty((0, 5), np.float32)
        groups = range(0, len(cuts), _AT_ONCE)
        parts = [calls[name]({"picture": cuts[n : n + _AT_ONCE]}) for n in groups]
        scores = np.concatenate([part["probability"][:, 0] for part in parts])
        offsets = np.concatenate([part["offsets"] for part in parts])
        sure = scores > least
        squares, scores, offsets = squares[sure], scores[sure], offsets[sure]
        if name == head.refinement:
            keep = suppress(squares, scores, _ALIKE)
            squares, scores, offsets = squares[keep], scores[keep], offsets[keep]
        boxes = np.column_stack([_moved(squares, offsets, 1.0), scores])
    keep = suppress(boxes[:, :4], boxes[:, 4], _ALIKE, smaller=True)
    return boxes[keep].astype(np.float32)


def _proposed(pixels: Array, head: BoxesHead, calls: Mapping[str, Call]) -> Array:
    """Return the boxes that the first network proposes at all scales, with scores."""
    found, (high, wide) = [np.empty((0, 9), np.float32)], pixels.shape[:2]
    scale = LEAST_SIDE / head.smallest
    while min(high, wide) * scale >= LEAST_SIDE:
        resized = resize_area(pixels, int(high * scale + 1), int(wide * scale + 1))
        results = calls[head.proposals]({"picture": resized[None]})
        probability, offsets = results["probability"][0], results["offsets"][0]
        rows, columns = np.nonzero(probability >= head.thresholds[0])
        # In float32, like facenet-pytorch: floors of 21 / 0.6 and the like depend on it.
        corner = (np.column_stack([columns, rows]) * _STRIDE).astype(np.float32)
        low, top = np.floor((corner + 1) / scale), np.floor((corner + LEAST_SIDE) / scale)
        boxes = np.column_stack([low, top, probability[rows, columns], offsets[:, rows, columns].T])
        found.append(boxes[suppress(boxes[:, :4], boxes[:, 4], _ALIKE_IN_SCALE)])
        scale *= head.factor
    boxes = np.concatenate(found)
    boxes = boxes[suppress(boxes[:, :4], boxes[:, 4], _ALIKE)]
    return np.column_stack([_moved(boxes[:, :4], boxes[:, 5:], 0.0), boxes[:, 4]])


def suppress(boxes: Array, scores: Array, share: float, *, smaller: bool = False) -> list[int]:
    """Return the indices of boxes, best first, that no better box overlaps by more than `share`.

    The share is of their union, or with `smaller` of the smaller box, with sides one pixel longer.
    """
    more = 1.0 if smaller else 0.0
    areas = np.prod(boxes[:, 2:] - boxes[:, :2] + more, axis=1)
    left, keep = np.argsort(-scores, kind="stable"), list[int]()
    while len(left):
        best, left = int(left[0]), left[1:]
        keep.append(best)
        low = np.maximum(boxes[best, :2], boxes[left, :2])
        high = np.minimum(boxes[best, 2:], boxes[left, 2:])
        common = np.prod(np.maximum(high - low + more, 0.0), axis=1)
        both = areas[best] + areas[left] - common
        left = left[common <= share * (np.minimum(areas[best], areas[left]) if smaller else both)]
    return keep


def _moved(boxes: Array, offsets: Array, more: float) -> Array:
    """Return corners moved by offsets, as shares of a box's sides, counted `more` pixels longer."""
    return boxes + offsets * np.tile(boxes[:, 2:] - boxes[:, :2] + more, 2)


def _squares(boxes: Array) -> Array:
    sides = boxes[:, 2:4] - boxes[:, :2]
    longer = sides.max(axis=1, keepdims=True)
    corner = boxes[:, :2] + sides / 2 - longer / 2
    return np.column_stack([corner, corner + longer])


def _cut(pixels: Array, boxes: Array, size: int) -> tuple[Array, Array]:
    """Return the resized parts of a picture inside boxes, and the boxes that contain pixels."""
    high, wide = pixels.shape[:2]
    edges = np.trunc(boxes).astype(int)
    low = np.maximum(edges[:, :2], 1) - 1
    ends = np.minimum(edges[:, 2:], [wide, high])
    inside = (ends > low).all(axis=1)
    cuts = [
        resize_area(pixels[y:bottom, x:right], size, size)
        for (x, y), (right, bottom) in zip(low[inside], ends[inside], strict=True)
    ]
    return np.array(cuts, np.float32), boxes[inside]


def resize_area(pixels: Array, high: int, wide: int) -> Array:
    """Resize (rows, columns, 3): each pixel is the mean of the area that it covers."""
    rows, columns = _means(pixels.shape[0], high), _means(pixels.shape[1], wide)
    return np.asarray(np.einsum("ir,rcx,jc->ijx", rows, pixels, columns, optimize=True), np.float32)


def _means(length: int, count: int) -> Array:
    weights = np.zeros((count, length), np.float32)
    for number in range(count):
        low, high = number * length // count, math.ceil((number + 1) * length / count)
        weights[number, low:high] = 1 / (high - low)
    return weights
