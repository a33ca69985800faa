"""Where each axis of a rearranged tensor comes from: a small algebra of views and permutations.

A tensor reached from another one, its *frame*, through views and permutations holds the same
elements, and each of its axes is an ordered product of *digits* of the frame's axes. A digit is
what one gets of an index by dividing and taking the remainder: of axis `axis` with index i it is
``(i // stride) % size``. A view keeps the row-major sequence of digits and groups it anew (it may
split a digit); a permutation reorders the groups. So two axes of the same size never look alike,
and sizes may be symbols: they are compared as expressions, and no guard is ever put on one.

Axes of size 1 carry no digit, since nothing can be told from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import sympy
import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Size: TypeAlias = int | sympy.Expr


@dataclass(frozen=True)
class Digit:
    """The part ``(index // stride) % size`` of the index along one axis of the frame."""

    axis: int
    size: Size
    stride: Size


Axes: TypeAlias = tuple[
    tuple[Digit, ...], ...
]  # one tuple an axis, the most significant digit first


def plain(size: Size) -> Size:
    """A canonical form, so that equal sizes compare equal."""
    if isinstance(size, int):
        return size
    expanded = sympy.expand(size)
    return int(expanded) if expanded.is_Integer else expanded


def sizes_of(values: Iterable[int | torch.SymInt]) -> tuple[Size, ...]:
    """Sizes or strides of a fake tensor as plain numbers and expressions."""
    return tuple(
        plain(value.node.expr) if isinstance(value, torch.SymInt) else int(value)
        for value in values
    )


def whole(axis: int, size: Size) -> tuple[Digit, ...]:
    """The group of digits of a complete axis of the frame."""
    return () if size == 1 else (Digit(axis, size, 1),)


def identity_axes(sizes: Sequence[Size]) -> Axes:
    """The axes of the frame itself."""
    return tuple(whole(axis, size) for axis, size in enumerate(sizes))


def permuted(axes: Axes, order: Sequence[int]) -> Axes:
    """The axes after `permute(order)`."""
    return tuple(axes[axis] for axis in order)


def regrouped(axes: Axes, sizes: Sequence[Size]) -> Axes | None:
    """The axes after a view to `sizes`; None where they are not products of digits.

    A view to (3, 2) of axes (2, 3) is legal in torch, but its axes mix the old ones. Nor is a
    symbolic axis split into two symbolic digits: whoever builds that view could not name its sizes.
    """
    digits = list(_merged(flat(axes)))
    groups = []
    for size in sizes:
        group = _take(digits, size)
        if group is None:
            return None
        groups.append(_merged(group))
    return None if digits else tuple(groups)


def whole_axis(group: tuple[Digit, ...], sizes: Sequence[Size]) -> int | None:
    """The axis of the frame that `group` is, complete and in order; None if it is anything else.

    Also None for an axis of size 1, which cannot be told from the others of that size.
    """
    if len(group) == 1 and group == whole(group[0].axis, sizes[group[0].axis]):
        return group[0].axis
    return None


def flat(axes: Axes) -> tuple[Digit, ...]:
    """All digits in row-major order."""
    return tuple(digit for group in axes for digit in group)


def in_frame_order(axes: Axes) -> tuple[Digit, ...]:
    """The digits of `axes` in the row-major order of the frame."""
    ordered: list[Digit] = []
    for axis in sorted({digit.axis for digit in flat(axes)}):
        rest = [digit for digit in flat(axes) if digit.axis == axis]
        minor_first, stride = [], sympy.Integer(1)
        while rest:  # a stride is the product of the sizes below it: no need to order symbols
            digit = next(d for d in rest if plain(d.stride) == plain(stride))
            rest.remove(digit)
            minor_first.append(digit)
            stride = sympy.expand(stride * digit.size)
        ordered += reversed(minor_first)
    return tuple(ordered)


def is_row_major(axes: Axes) -> bool:
    """Whether the frame's elements stand in the same order: a view of it, no transposition."""
    return _merged(flat(axes)) == _merged(in_frame_order(axes))


def same_order(axes: Axes, other: Axes) -> bool:
    """Whether the elements stand in the same row-major order in both arrangements."""
    return _merged(flat(axes)) == _merged(flat(other))


def _take(digits: list[Digit], size: Size) -> list[Digit] | None:
    """Move digits whose sizes multiply to `size` from the front of `digits`; split the last."""
    group: list[Digit] = []
    while size != 1:
        if not digits:
            return None
        digit = digits.pop(0)
        rest = _quotient(size, digit.size)
        if rest is not None:
            group.append(digit)
            size = rest
            continue
        below = _quotient(digit.size, size)
        if below is None or not (isinstance(below, int) or isinstance(size, int)):
            return None
        group.append(Digit(digit.axis, size, plain(digit.stride * below)))
        digits.insert(0, Digit(digit.axis, below, digit.stride))
        break
    return group


def _merged(digits: Iterable[Digit]) -> tuple[Digit, ...]:
    """Neighbours that continue each other joined to one: equal axes get equal digits."""
    merged: list[Digit] = []
    for digit in digits:
        above = merged[-1] if merged else None
        if (
            above is not None
            and above.axis == digit.axis
            and above.stride == plain(digit.stride * digit.size)
        ):
            merged[-1] = Digit(digit.axis, plain(above.size * digit.size), digit.stride)
        else:
            merged.append(digit)
    return tuple(merged)


def _quotient(dividend: Size, divisor: Size) -> Size | None:
    """The exact quotient, for every value of the symbols; None if there may be a remainder."""
    if isinstance(dividend, int) and isinstance(divisor, int):
        return dividend // divisor if dividend % divisor == 0 else None
    quotient = sympy.cancel(sympy.sympify(dividend) / divisor)
    _, denominator = quotient.as_numer_denom()
    return plain(quotient) if denominator == 1 else None
