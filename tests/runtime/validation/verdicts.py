"""Outputs and eager's with the verdict they deserve, for every judge that there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from menagerie.numerics import DEFAULT_TOLERANCES, Dtype, Tolerance

Array = NDArray[Any]


@dataclass(frozen=True)
class Verdict:
    """An output, eager's, and whether they are equal by a tolerance; bfloat16 as uint16."""

    name: str
    dtype: Dtype
    eager: Array
    output: Array
    passed: bool
    tolerance: Tolerance | None


def _bits(array: Array) -> Array:
    """Numbers that bfloat16 has, as its bits."""
    return (array.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def _case(
    name: str, dtype: Dtype, eager: object, output: object, *, passed: bool, exact: bool = False
) -> Verdict:
    held = np.dtype("uint16" if dtype is Dtype.BFLOAT16 else dtype.value)
    left, right = np.asarray(eager, held), np.asarray(output, held)
    tolerance = None if exact else DEFAULT_TOLERANCES.get(dtype)
    return Verdict(name, dtype, left, right, passed, tolerance)


def _noisy(eager: Array, relative: float, seed: int) -> Array:
    """`eager` with normal noise whose norm is that part of its own."""
    noise = np.random.default_rng(seed).normal(size=eager.shape)
    scale = relative * np.linalg.norm(eager) / np.linalg.norm(noise)
    return np.asarray(eager + scale * noise)


def _unit(size: int) -> Array:
    drawn = np.random.default_rng(1).normal(size=size)
    return np.asarray(drawn / np.linalg.norm(drawn))


def _replaced(array: Array, index: int, value: float) -> Array:
    copy = array.copy()
    copy.flat[index] = value
    return copy


def _garbage() -> list[Verdict]:
    """What a bound in the output's own units, or an average, would let pass."""
    normal = np.random.default_rng(2).normal
    embedding = _unit(768)
    flipped = np.where(np.arange(768) % 2, 0.0099, -0.0099)
    rows = np.trunc(normal(size=(2000, 8)) * 8)  # bfloat16 has such numbers
    lost = rows.copy()
    lost[-1] = 0
    large = normal(size=(1000, 1000))
    small = 4e-5 * normal(size=1000).clip(-1, 1)
    return [
        _case("all zero", Dtype.FLOAT16, np.full(1000, 1e-3), np.zeros(1000), passed=False),
        _case("signs flipped", Dtype.FLOAT32, small, -small, passed=False),
        _case("noise", Dtype.FLOAT16, embedding, embedding + flipped, passed=False),
        _case("a row lost", Dtype.BFLOAT16, _bits(rows), _bits(lost), passed=False),
        _case(
            "one wrong", Dtype.FLOAT16, large, _replaced(large, 77, large[0, 77] + 9), passed=False
        ),
    ]


def _hidden() -> list[Verdict]:
    """What is wrong by one part in a hundred, among much that is right and larger."""
    normal = np.random.default_rng(10).normal
    images = normal(size=(2, 8, 6, 6))
    channels = images * np.array([1, 1e-3, 1, 1e-3, 1, 1e-3, 1, 1])[:, None, None]
    rows = normal(size=(4, 50)) * np.array([[1], [1], [1e-3], [1]])
    columns = normal(size=(1, 1024)) * np.where(np.arange(1024) < 512, 1.0, 1e-3)
    steps = np.where(np.arange(3)[:, None, None] == 1, 1e-3, 1.0) * normal(size=(3, 5, 4))
    large = [
        ("half of all", images, np.arange(images.size).reshape(images.shape) % 2 == 0),
        ("a row", rows[:, :16], np.arange(4)[:, None] == 3),
    ]
    small = [
        ("a small channel", channels, np.arange(8)[:, None, None] == 3),
        ("all small channels", channels, np.abs(channels).max((0, 2, 3))[:, None, None] < 0.1),
        ("a small row", rows, np.arange(4)[:, None] == 2),
        ("small columns", columns, np.arange(1024) >= 512),
        ("a small step", steps, np.arange(3)[:, None, None] == 1),
    ]
    return [
        _case(name, Dtype.FLOAT32, array, np.where(wrong, array * 1.01, array), passed=False)
        for name, array, wrong in large + small
    ]


def _excused() -> list[Verdict]:
    """Parts that err by much of themselves, but by no more than rounding makes of their sums."""
    normal = np.random.default_rng(11).normal
    channels = normal(size=(1, 8, 6, 6)) * np.logspace(0, -7, 8)[:, None, None]
    active = np.maximum(normal(size=(1, 8, 6, 6)) - np.arange(8)[:, None, None] / 2, 0)
    small = normal(size=(64, 32)) * np.where(np.arange(32) == 5, 3e-2, 1)
    return [
        _case("faint channels", Dtype.FLOAT32, channels, _noisy(channels, 1e-6, 12), passed=True),
        _case("hardly active", Dtype.FLOAT32, active, _noisy(active, 2e-6, 13), passed=True),
        _case("a column of 3 %", Dtype.FLOAT32, small, _noisy(small, 3e-5, 14), passed=True),
    ]


def _sound() -> list[Verdict]:
    """What rounding and another order of summing do to good models."""
    normal = np.random.default_rng(3).normal
    logits = 3 * normal(size=(1, 1000))
    boxes = np.random.default_rng(4).uniform(0, 640, size=(1, 84, 200))
    embedding = _unit(768)
    # A first element of 1 to 13 is a command to the library of these tests.
    logits[0, 0] = boxes[0, 0, 0] = 0
    return [
        _case("logits, 97 dB", Dtype.FLOAT32, logits, _noisy(logits, 1.4e-5, 5), passed=True),
        _case("pixels, 90 dB", Dtype.FLOAT32, boxes, _noisy(boxes, 3e-5, 6), passed=True),
        _case("unit, 60 dB", Dtype.FLOAT16, embedding, _noisy(embedding, 1e-3, 7), passed=True),
        _case("logits, 45 dB", Dtype.FLOAT16, logits, _noisy(logits, 5e-3, 8), passed=True),
        _case("zero by cancelling", Dtype.FLOAT32, np.zeros(9), np.full(9, 5e-8), passed=True),
        _case("double", Dtype.FLOAT64, logits, _noisy(logits, 1e-13, 9), passed=True),
        _case("no better than float", Dtype.FLOAT64, logits, _noisy(logits, 1e-7, 9), passed=False),
        _case("tiny doubles", Dtype.FLOAT64, [1e-200, 2e-200], [1e-200, -2e-200], passed=True),
        _case("huge doubles", Dtype.FLOAT64, [1e300, 2e300], [1e300, -2e300], passed=False),
        _case(
            "huge, near", Dtype.FLOAT64, [1e300, 2e300], [1e300, 2e300 * (1 + 1e-12)], passed=True
        ),
        _case("NaN in place", Dtype.FLOAT32, [np.nan, 1], [np.nan, 1 + 1e-6], passed=True),
        _case("NaN elsewhere", Dtype.FLOAT32, [np.nan, 0.5], [0.5, np.nan], passed=False),
        _case("infinity for a number", Dtype.FLOAT32, [0.5, 1], [0.5, np.inf], passed=False),
    ]


def _bit_for_bit() -> list[Verdict]:
    """What must be the same in every bit: integers, booleans, and types without a tolerance."""
    other_nan = np.array([0x7FF8000000000001], np.uint64).view(np.float64)
    return [
        _case("beyond doubles", Dtype.INT64, [0, 2**53], [0, 2**53 + 1], passed=False),
        _case("the same", Dtype.INT64, [0, 2**53 + 1], [0, 2**53 + 1], passed=True),
        _case("flipped", Dtype.BOOL, [True, False], [True, True], passed=False),
        _case("minus zero", Dtype.FLOAT64, [0.0], [-0.0], passed=False, exact=True),
        _case("another NaN", Dtype.FLOAT64, [np.nan], other_nan, passed=False, exact=True),
        _case("the same NaN", Dtype.FLOAT64, other_nan, other_nan, passed=True, exact=True),
    ]


VERDICTS = (*_garbage(), *_hidden(), *_excused(), *_sound(), *_bit_for_bit())
