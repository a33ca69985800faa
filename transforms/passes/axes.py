"""How layout operators act on axes: a small algebra of views and permutations.

A tensor reached from another one, its *frame*, through views and permutations holds the same
elements, and each of its axes is an ordered product of *digits* of the frame's axes. A digit is
the result of dividing an index and taking the remainder: for index i of axis `axis` it is
``(i // stride) % size``. A view keeps the row-major sequence of digits and regroups it (it may
split a digit); a permutation reorders the groups. So two axes of the same size are never confused,
and sizes may be symbols: they are compared as expressions and never guarded.

Axes of size 1 carry no digit, since their index is always 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import sympy
import torch
from torch.fx import Node

from transforms.graph.editor import ProgramEditor, fake_value
from transforms.graph.layouts import reads_layout
from transforms.graph.schemas import qualified_name

Size: TypeAlias = int | sympy.Expr
_MATRIX = 2  # rank


@dataclass(frozen=True)
class Digit:
    """The part ``(index // stride) % size`` of the index along one axis of the frame."""

    axis: int
    size: Size
    stride: Size


Axes: TypeAlias = tuple[
    tuple[Digit, ...], ...
]  # one tuple per axis, the most significant digit first


def plain(size: Size) -> Size:
    """Return a canonical form, in which equal sizes compare equal."""
    if isinstance(size, int):
        return size
    expanded = sympy.expand(size)
    return int(expanded) if expanded.is_Integer else expanded


def sizes_of(values: Iterable[int | torch.SymInt]) -> tuple[Size, ...]:
    """Return sizes or strides of a fake tensor as integers and expressions."""
    return tuple(
        plain(value.node.expr) if isinstance(value, torch.SymInt) else int(value)
        for value in values
    )


def whole(axis: int, size: Size) -> tuple[Digit, ...]:
    """Return the group of digits that makes up a whole axis of the frame."""
    return () if size == 1 else (Digit(axis, size, 1),)


def identity_axes(sizes: Sequence[Size]) -> Axes:
    """Return the axes of the frame itself."""
    return tuple(whole(axis, size) for axis, size in enumerate(sizes))


def permuted(axes: Axes, order: Sequence[int]) -> Axes:
    """Return the axes after `permute(order)`."""
    return tuple(axes[axis] for axis in order)


def regrouped(axes: Axes, sizes: Sequence[Size]) -> Axes | None:
    """Return the axes after a view to `sizes`; None if they are not products of digits.

    torch allows a view of axes (2, 3) to (3, 2), but its axes mix the old ones. A symbolic axis is
    not split into two symbolic digits either: that view's sizes could not be named.
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
    """Return the axis of the frame that `group` equals, complete and in order; else None.

    Return None for an axis of size 1 too, since it cannot be told from others of that size.
    """
    if len(group) == 1 and group == whole(group[0].axis, sizes[group[0].axis]):
        return group[0].axis
    return None


def flat(axes: Axes) -> tuple[Digit, ...]:
    """Return all digits in row-major order."""
    return tuple(digit for group in axes for digit in group)


def in_frame_order(axes: Axes) -> tuple[Digit, ...]:
    """Return the digits of `axes` in the row-major order of the frame."""
    ordered: list[Digit] = []
    for axis in sorted({digit.axis for digit in flat(axes)}):
        rest = [digit for digit in flat(axes) if digit.axis == axis]
        minor_first, stride = [], sympy.Integer(1)
        while rest:  # a stride is the product of the sizes below: no order of symbols needed
            digit = next(d for d in rest if plain(d.stride) == plain(stride))
            rest.remove(digit)
            minor_first.append(digit)
            stride = sympy.expand(stride * digit.size)
        ordered += reversed(minor_first)
    return tuple(ordered)


def is_row_major(axes: Axes) -> bool:
    """Return whether the frame's elements keep their order, as in a view without transposition."""
    return _merged(flat(axes)) == _merged(in_frame_order(axes))


def same_order(axes: Axes, other: Axes) -> bool:
    """Return whether both arrangements have the elements in the same row-major order."""
    return _merged(flat(axes)) == _merged(flat(other))


def _take(digits: list[Digit], size: Size) -> list[Digit] | None:
    """Move digits whose sizes multiply to `size` off the front of `digits`; split the last one."""
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
    """Join neighbours that continue each other, so that equal axes get equal digits."""
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
    """Return the quotient if it is exact for all values of the symbols; else None."""
    if isinstance(dividend, int) and isinstance(divisor, int):
        return dividend // divisor if dividend % divisor == 0 else None
    quotient = sympy.cancel(sympy.sympify(dividend) / divisor)
    _, denominator = quotient.as_numer_denom()
    return plain(quotient) if denominator == 1 else None


aten = torch.ops.aten


def _named(*names: str) -> frozenset[str]:
    return frozenset(f"aten::{name}" for name in names)


# These keep elements in row-major order, whatever the new sizes.
REGROUPINGS = _named(
    "view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "flatten", "unflatten",
    "view_copy", "_reshape_copy", "unsqueeze_copy", "squeeze_copy",
)  # fmt: skip
# These keep sizes and elements; memory and strides may be new.
COPIES = _named("alias", "detach", "contiguous", "clone", "alias_copy", "detach_copy")
EXPANSIONS = _named("expand", "expand_copy")  # the identity where they expand nothing
PERMUTATIONS = _named(
    "permute", "transpose", "t", "swapaxes", "swapdims", "movedim", "moveaxis", "numpy_T", "mT",
    "permute_copy", "transpose_copy", "t_copy",
)  # fmt: skip
_IN_ORDER = REGROUPINGS | COPIES | EXPANSIONS


def is_tensor(node: Any) -> bool:
    """Return whether `node` is a graph node that yields one tensor."""
    return isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)


def is_layout(node: Node) -> bool:
    """Return whether `node` only rearranges its first argument."""
    return _is_in_order(node) or qualified_name(node.target) in PERMUTATIONS


def _is_in_order(node: Node) -> bool:
    """Return whether a node only regroups axes; a `view` that reinterprets bytes does not."""
    return qualified_name(node.target) in _IN_ORDER and node.target is not aten.view.dtype


def follow(node: Node, axes: Axes) -> Axes | None:
    """Return the axes after the layout operator `node`, from its input's axes; None if unknown."""
    if qualified_name(node.target) in PERMUTATIONS:
        return permuted(axes, axis_order(node, len(axes)))
    return regrouped(axes, sizes_of(fake_value(node).shape))


def axis_order(node: Node, rank: int) -> tuple[int, ...]:
    """Return, for each axis of a permutation's result, the axis of its source, of any rank.

    It is read off a tensor without memory whose axes have distinct sizes: 2, 3, 4 ...
    """
    probe = torch.empty(tuple(range(2, 2 + rank)), device="meta")
    moved = node.target(probe, *node.args[1:], **node.kwargs)  # type: ignore[operator]
    return tuple(size - 2 for size in moved.shape)


def constant_value(editor: ProgramEditor, node: Any) -> torch.Tensor | None:
    """Return the tensor of a weight, or of layout operators applied to one; None otherwise."""
    if not is_tensor(node):
        return None
    if node.op == "call_function" and is_layout(node) and len(node.all_input_nodes) == 1:
        inner = constant_value(editor, node.args[0])
        if inner is None:
            return None
        with torch.no_grad():
            moved: torch.Tensor = node.target(inner.detach(), *node.args[1:], **node.kwargs)
        return moved
    value = editor.constant(node)
    return None if value is None else value.detach()


def constant_matrix(editor: ProgramEditor, node: Any) -> torch.Tensor | None:
    """Return the constant matrix that `node` holds, or repeats along axes before its last two.

    A product with a matrix expanded to a batch equals a product with the matrix itself.
    """
    value = constant_value(editor, node)
    while value is None and is_tensor(node) and _is_in_order(node):
        inner = node.args[0]
        if not is_tensor(inner) or _matrix_sizes(inner) != _matrix_sizes(node):
            return None
        node = inner
        value = constant_value(editor, node)
    while value is not None and value.dim() > _MATRIX and 0 not in value.shape:
        if value.shape[0] != 1 and value.stride(0) != 0:
            return None
        value = value[0]
    return value if value is not None and value.dim() == _MATRIX else None


def _matrix_sizes(node: Node) -> tuple[Size, ...]:
    return sizes_of(fake_value(node).shape)[-2:]


def pinned_nodes(editor: ProgramEditor) -> set[Node]:
    """Return the nodes that may share storage with one that is read by its strides.

    These nodes must keep their memory and layout, so nothing may recompute them elsewhere.
    """
    shared = editor.aliasing()
    readers = filter(reads_layout, editor.graph.nodes)
    read = [operand for node in readers for operand in node.all_input_nodes if is_tensor(operand)]
    return {n for n in editor.graph.nodes if any(shared.share(n, other) for other in read)}


def is_dtype_assertion(node: Node) -> bool:
    """Return whether `node` only asserts dtype, device or layout, which no rearranging changes."""
    return (
        node.target is aten._assert_tensor_metadata.default
        and node.args[1:3] in {(), (None,), (None, None)}
        and not {"size", "stride"} & node.kwargs.keys()
    )
