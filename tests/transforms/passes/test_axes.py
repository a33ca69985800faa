"""The algebra of axes says where every element of a rearranged tensor comes from."""

from __future__ import annotations

import itertools
import math
from typing import Any

import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.passes.axes import (
    Axes,
    Digit,
    identity_axes,
    in_frame_order,
    is_row_major,
    permuted,
    regrouped,
    same_order,
    whole_axis,
)


def _element(axes: Axes, index: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """The frame's index of the element at `index`, by the definition of a digit."""
    position = [0] * rank
    for group, at in zip(axes, index, strict=True):
        below = at
        for digit in reversed(group):
            below, value = divmod(below, int(digit.size))
            position[digit.axis] += value * int(digit.stride)
    return tuple(position)


@st.composite
def _regrouping(draw: Any, sizes: tuple[int, ...]) -> list[int]:
    """Sizes with the same product: neighbours joined, axes split, ones put in anywhere."""
    parts = []
    for size in sizes:
        divisors = [d for d in range(1, size + 1) if size % d == 0]
        first = draw(st.sampled_from(divisors))
        parts += [first, size // first]
    joined = [1]
    for part in parts:
        if draw(st.booleans()):
            joined[-1] *= part
        else:
            joined.append(part)
    return joined


@settings(max_examples=150, deadline=None)
@given(data=st.data(), sizes=st.lists(st.sampled_from([1, 2, 2, 3, 4, 6]), min_size=1, max_size=4))
def test_every_element_is_where_the_axes_say(data: Any, sizes: list[int]) -> None:
    """After any chain of views and permutations, equal sizes or not, no element is misplaced."""
    frame = torch.arange(math.prod(sizes)).reshape(sizes)
    value, axes = frame, identity_axes(sizes)
    for _ in range(data.draw(st.integers(1, 4))):
        if data.draw(st.booleans()):
            order = data.draw(st.permutations(range(value.dim())))
            value, axes = value.permute(order), permuted(axes, order)
        else:
            shape = data.draw(_regrouping(tuple(value.shape)))
            fresh = regrouped(axes, shape)
            if fresh is None:
                continue
            value, axes = value.reshape(shape), fresh
    for index in itertools.product(*(range(size) for size in value.shape)):
        assert frame[_element(axes, index, frame.dim())] == value[index]
    assert is_row_major(axes) == bool((value.reshape(-1) == frame.reshape(-1)).all())
    laid = frame.reshape([int(d.size) for d in in_frame_order(axes)] or [1])
    assert torch.equal(laid.reshape(-1), frame.reshape(-1))


def test_equal_sizes_are_distinguished() -> None:
    """Height and width of the same size exchanged is not the identity."""
    swapped = permuted(identity_axes((2, 3, 5, 5)), (0, 1, 3, 2))
    assert swapped != identity_axes((2, 3, 5, 5))
    assert not is_row_major(swapped)
    assert whole_axis(swapped[2], (2, 3, 5, 5)) == 3


def test_a_view_that_mixes_axes_is_not_followed() -> None:
    """(2, 3) seen as (3, 2) has axes that are no product of digits of the old ones."""
    assert regrouped(identity_axes((2, 3)), (3, 2)) is None


def test_a_split_axis_is_whole_again_once_joined() -> None:
    """Splitting and joining gives back the very same axis; joined the other way round, none."""
    split = regrouped(identity_axes((6, 4)), (2, 3, 4))
    assert split == ((Digit(0, 2, 3),), (Digit(0, 3, 1),), (Digit(1, 4, 1),))
    assert regrouped(split, (6, 4)) == identity_axes((6, 4))
    turned = regrouped(permuted(split, (1, 0, 2)), (6, 4))
    assert turned is not None
    assert whole_axis(turned[0], (6, 4)) is None
    assert not same_order(turned, split)


def test_sizes_that_expand_are_not_followed() -> None:
    """A tensor with more elements than its frame is no rearrangement of it."""
    assert regrouped(identity_axes((1, 4)), (4, 4)) is None
    assert regrouped(identity_axes((4, 4)), (4,)) is None


def test_an_axis_of_size_one_cannot_be_named() -> None:
    """Nothing distinguishes one axis of a single element from another."""
    assert whole_axis(identity_axes((1, 1))[0], (1, 1)) is None


def test_symbolic_sizes_are_compared_as_expressions() -> None:
    """A dynamic batch joined with an axis and parted again is the batch, for every value."""
    batch = sympy.Symbol("s0", integer=True, positive=True)
    axes = identity_axes((batch, 8, 5))
    joined = regrouped(permuted(axes, (0, 2, 1)), (batch * 5, 8))
    assert joined is not None
    assert regrouped(joined, (batch, 5, 8)) == permuted(axes, (0, 2, 1))
    assert regrouped(joined, (5, batch, 8)) is None
    assert regrouped(joined, (sympy.Symbol("s1", integer=True, positive=True), 8)) is None


def test_symbolic_axes_split_by_numbers_only() -> None:
    """(4 * s) is split into (s, 4) but (s * t) not into (s, t): that size could not be computed."""
    s, t = sympy.symbols("s t", integer=True, positive=True)
    assert regrouped(identity_axes((4 * s,)), (s, 4)) == ((Digit(0, s, 4),), (Digit(0, 4, 1),))
    assert regrouped(identity_axes((s * t,)), (s, t)) is None
    assert regrouped(identity_axes((s,)), (2, s / 2)) is None
