"""Carries a complex tensor through a graph as its real and its imaginary plane.

Targets without complex numbers compute on two real tensors instead. This file knows, operator by
operator, what a consumer of a complex tensor does in terms of the two planes; a consumer it does
not know is a reason to leave the complex tensor alone.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from transforms.graph.aliasing import Aliasing
from transforms.graph.editor import fake_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from transforms.graph.editor import ProgramEditor

aten = torch.ops.aten


@dataclass(frozen=True)
class Planes:
    """A complex tensor as two real ones of its shape.

    `pair` is both in one tensor, as view_as_real gives it, where such a tensor exists.
    """

    real: Node
    imag: Node
    pair: Node | None = None


# What moves elements without looking at them does the same to each plane.
_LAYOUT = {
    aten.alias.default, aten.clone.default, aten.contiguous.default, aten.detach.default,
    aten.expand.default, aten.flatten.using_ints, aten.mT.default, aten.narrow.default,
    aten.permute.default, aten.reshape.default, aten.select.int, aten.slice.Tensor,
    aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.t.default,
    aten.transpose.int, aten.unflatten.int, aten.unsqueeze.default, aten.view.default,
    aten._unsafe_view.default,
}  # fmt: skip
_VIEWS = {aten.view.default, aten._unsafe_view.default}
_CONJUGATES = {aten.conj.default, aten._conj.default, aten.conj_physical.default}
_LINEAR = {aten.mul.Tensor, aten.div.Tensor}
_REAL_RESULTS = {
    aten.abs.default, aten.imag.default, aten.real.default, aten.sym_size.int,
    aten.view_as_real.default,
}  # fmt: skip


def refusal(node: Node) -> str | None:
    """Why the complex result of `node` cannot be carried as planes; None when it can.

    Every consumer is followed until the numbers are real again.
    """
    if is_written(node):
        return "its result, or a view of it, is written in place"
    consumers = _consumers(node)
    carried = {node, *(n for n in consumers if n.target not in _REAL_RESULTS)}
    reasons = (_user_refusal(user, carried) for user in consumers)
    return next((reason for reason in reasons if reason), None)


def replace_complex(editor: ProgramEditor, node: Node, planes: Planes) -> list[Node]:
    """Rewrite everything that consumes the complex `node` to consume `planes`.

    Call it only when `refusal` found nothing. The complex nodes lose their last user and go with
    the dead code.

    Returns:
        The real results that took the place of others; their strides may differ from those.
    """
    carried = {node: planes}
    fresh: list[Node] = []
    for user in _consumers(node):
        with editor.graph.inserting_before(user):
            if user.target in _REAL_RESULTS:
                fresh += _make_real(editor, user, carried[user.args[0]])  # type: ignore[index]
            else:
                carried[user] = _carry(editor, user, carried)
    return fresh


def _consumers(node: Node) -> list[Node]:
    """All that consumes `node`, or what is complex because of it, in graph order."""
    found: set[Node] = set()
    queue = [node]
    while queue:
        for user in queue.pop().users:
            if user not in found:
                found.add(user)
                if user.target not in _REAL_RESULTS:
                    queue.append(user)
    return [n for n in node.graph.nodes if n in found]


def _user_refusal(user: Node, carried: set[Node]) -> str | None:
    if user.op == "output":
        return "the program returns complex numbers made of it"
    strangers = [n for n in user.all_input_nodes if _is_complex(n) and n not in carried]
    if strangers:
        return f"{user.name} also takes {strangers[0].name}, which is complex"
    if user.target in _REAL_RESULTS | _LAYOUT | _CONJUGATES:
        return None
    if user.target in _LINEAR:
        return _arithmetic_refusal(user, carried)
    return f"{user.name} ({user.target}) has no form in real and imaginary planes here"


def _arithmetic_refusal(user: Node, carried: set[Node]) -> str | None:
    if any(isinstance(a, complex) for a in user.args):
        return f"{user.name} takes a complex scalar"
    if user.target is aten.div.Tensor and user.args[1] in carried:
        return f"{user.name} divides by complex numbers"
    return None


def is_written(node: Node) -> bool:
    """Whether anything writes into the memory of `node`, itself or through a view."""
    # The analysis runs composite operators on fake values: it must not bind a dynamic dimension.
    shapes = fake_value(node).fake_mode.shape_env
    with nullcontext() if shapes is None else shapes.suppress_guards():
        return Aliasing(node.graph).is_written(node)


def _is_complex(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_complex()


# Complex in, complex out


def _carry(editor: ProgramEditor, user: Node, carried: dict[Node, Planes]) -> Planes:
    if user.target in _CONJUGATES:
        planes = carried[user.args[0]]  # type: ignore[index]
        return Planes(planes.real, editor.call(aten.neg.default, planes.imag, like=user))
    operands = [carried[a] for a in user.args if isinstance(a, Node) and a in carried]
    if user.target is aten.mul.Tensor and len(operands) == 2:  # noqa: PLR2004
        left, right = operands
        return _product(editor, user, left, right)

    # A view's strides need not exist for a plane; reshape copies where they do not.
    target = aten.reshape.default if user.target in _VIEWS else user.target

    def on(plane: str) -> Node:
        args = [
            getattr(carried[a], plane) if isinstance(a, Node) and a in carried else a
            for a in user.args
        ]
        return editor.call(target, *args, like=user, **user.kwargs)

    return Planes(on("real"), on("imag"))


def _product(editor: ProgramEditor, user: Node, left: Planes, right: Planes) -> Planes:
    """(a + bi)(c + di) = (ac - bd) + (ad + bc)i."""

    def times(a: Node, b: Node) -> Node:
        return editor.call(aten.mul.Tensor, a, b, like=user)

    ac, bd = times(left.real, right.real), times(left.imag, right.imag)
    ad, bc = times(left.real, right.imag), times(left.imag, right.real)
    return Planes(
        editor.call(aten.sub.Tensor, ac, bd, like=user),
        editor.call(aten.add.Tensor, ad, bc, like=user),
    )


# Complex in, real out


def _make_real(editor: ProgramEditor, user: Node, planes: Planes) -> list[Node]:
    """Replace a consumer that yields real numbers; return what took its place."""
    if user.target is aten.abs.default:
        return _magnitude(editor, user, planes)
    if user.target is aten.real.default:
        fresh = planes.real
    elif user.target is aten.imag.default:
        fresh = planes.imag
    elif user.target is aten.sym_size.int:
        fresh = editor.call(aten.sym_size.int, planes.real, user.args[1], like=user)
    else:
        fresh = planes.pair or editor.call(
            aten.stack.default, [planes.real, planes.imag], -1, like=user
        )
    editor.replace(user, fresh)
    return [fresh]


def _magnitude(editor: ProgramEditor, user: Node, planes: Planes) -> list[Node]:
    """|z| = sqrt(re^2 + im^2); where it is only squared again, no root is taken."""
    squares = [
        editor.call(aten.mul.Tensor, plane, plane, like=user)
        for plane in (planes.real, planes.imag)
    ]
    power = editor.call(aten.add.Tensor, *squares, like=user)
    fresh = [power]
    for square in _squares(user.users):
        editor.replace(square, power)
    if user.users:
        root = editor.call(aten.sqrt.default, power, like=user)
        editor.replace(user, root)
        fresh.append(root)
    return fresh


def _squares(users: Iterable[Node]) -> list[Node]:
    return [
        u
        for u in users
        if u.target is aten.square.default
        or (u.target is aten.pow.Tensor_Scalar and u.args[1] == 2)  # noqa: PLR2004
        or (u.target is aten.mul.Tensor and u.args[0] is u.args[1])
    ]
