"""Find chains of pointwise steps that are cheaper in the layout of the tensor they started from.

A step works on each position alone: an affine map, a channel norm, an elementwise operator. Every
value is *placed*: described as another tensor, its frame, with rearranged axes. Layout operators
keep the frame and rearrange axes; a step on a placed value has a counterpart that does the same in
the frame itself, along the frame's own axis. A chain is a set of connected steps; it pays if its
counterparts need fewer transpositions than there are now.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from transforms.graph.editor import ProgramEditor, fake_value
from transforms.graph.schemas import bound_arguments, is_elementwise
from transforms.passes.axes import (
    Axes,
    Size,
    constant_matrix,
    constant_value,
    flat,
    follow,
    identity_axes,
    in_frame_order,
    is_dtype_assertion,
    is_layout,
    is_row_major,
    is_tensor,
    same_order,
    sizes_of,
    whole,
    whole_axis,
)

aten = torch.ops.aten

_MATRIX = 2  # rank
_IMAGES = (4, 5)  # ranks: batch, channels, two or three axes of positions


@dataclass(frozen=True, eq=False)
class Step:
    """An operator on each position of `operands`; all its other inputs are constant."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Affine(Step):
    """y[..., o, ...] = sum over c of weight[o, c] * x[..., c, ...] + bias[o], along one axis."""

    axis: int  # of the operand, not negative
    weight: Tensor  # (out features, in features)
    bias: Tensor | None  # (out features,)
    name: str  # the weight's qualified name


@dataclass(frozen=True, eq=False)
class ChannelNorm(Step):
    """Layer normalisation over the operand's last axis."""

    weight: Tensor | None
    bias: Tensor | None
    eps: float
    name: str


@dataclass(frozen=True, eq=False)
class Elementwise(Step):
    """An operator on tensors of one shape and on constants that broadcast to it."""

    constants: dict[Node, Tensor]


def read_step(editor: ProgramEditor, node: Node) -> Step | str | None:
    """Return the step that `node` performs on each position; None if the operator is no step.

    Return a reason (str) if `node` is an affine map that cannot be used. Whether the axes fit is
    not checked.
    """
    if node.target in _AFFINE:
        if not fake_value(node).dtype.is_floating_point:
            return "it is not of a floating-point type"
        return _AFFINE[node.target](editor, node)
    if node.target is aten.layer_norm.default:
        return _channel_norm(editor, node)
    if _is_norm_result(node):
        return _channel_norm(editor, node.args[0])
    return _elementwise(editor, node) if is_elementwise(node) else None


def weight_name(editor: ProgramEditor, node: Node) -> str:
    """Return the qualified name of the constant behind `node`, also through layout operators."""
    while node.op == "call_function" and is_layout(node):
        node = node.args[0]  # type: ignore[assignment]
    return editor.constant_name(node)


def _linear(editor: ProgramEditor, node: Node) -> Affine | str:
    named = bound_arguments(node)
    weight = constant_value(editor, named["weight"])
    bias = constant_value(editor, named["bias"])
    if weight is None or weight.dim() != _MATRIX:
        return f"its weight {named['weight']} is not a constant matrix"
    if named["bias"] is not None and bias is None:
        return f"its bias {named['bias']} is not a constant"
    return _affine(editor, named["weight"], weight, operand=named["input"], bias=bias)


def _addmm(editor: ProgramEditor, node: Node) -> Affine | str:
    """Read beta * self + alpha * (mat1 @ mat2); if beta is 0, self is ignored."""
    named = bound_arguments(node)
    alpha, beta = named["alpha"], named["beta"]
    if isinstance(alpha, Node) or isinstance(beta, Node):
        return "its alpha or beta is not a number"
    weight = constant_value(editor, named["mat2"])
    if weight is None:
        return f"its second factor {named['mat2']} is not a constant"
    bias = None
    if beta != 0:
        added = constant_value(editor, named["self"])
        if added is None:
            return f"what it adds, {named['self']}, is not a constant"
        if added.dim() == _MATRIX and added.shape[0] != 1:
            return "what it adds differs from row to row"
        bias = _times(added.reshape(-1).expand(weight.shape[1]), beta)
    weight = _times(weight, alpha).t()
    return _affine(editor, named["mat2"], weight, operand=named["mat1"], bias=bias)


def _times(value: Tensor, factor: float) -> Tensor:
    return value if factor == 1 else (value.double() * factor).to(value.dtype)


def _product(editor: ProgramEditor, node: Node) -> Affine | str | None:
    """Read mm, bmm and matmul with a constant right or left factor."""
    left: Any = node.args[0]
    right: Any = node.args[1]
    weight = constant_matrix(editor, right)
    if weight is not None:
        return _affine(editor, right, weight.t(), operand=left)
    weight = constant_matrix(editor, left)
    if weight is None:
        return None  # a product of activations, such as attention, is no affine map
    if fake_value(right).dim() < _MATRIX:
        return f"its constant factor {left} is applied to a single vector"
    return _affine(editor, left, weight, operand=right, axis=-2)


def _affine(
    editor: ProgramEditor, source: Node, weight: Tensor, *, operand: Any, axis: int = -1,
    bias: Tensor | None = None,
) -> Affine | str:  # fmt: skip
    """Return the map of `operand` by `weight`, which is the oriented constant `source`."""
    if constant_value(editor, operand) is not None:
        return "it maps a constant"
    rank = fake_value(operand).dim()
    return Affine((operand,), axis % rank, weight, bias, weight_name(editor, source))


_AFFINE = {
    aten.linear.default: _linear,
    aten.addmm.default: _addmm,
    **dict.fromkeys((aten.mm.default, aten.bmm.default, aten.matmul.default), _product),
}


def _is_norm_result(node: Node) -> bool:
    """Return whether `node` is the normalised tensor of a native norm, and its only used result."""
    norm = node.args[0] if node.target is operator.getitem else None
    return bool(
        isinstance(norm, Node)
        and norm.target is aten.native_layer_norm.default
        and node.args[1] == 0
        and len(norm.users) == 1
    )


def _channel_norm(editor: ProgramEditor, node: Any) -> ChannelNorm | None:
    named = bound_arguments(node)
    affine = [named["weight"], named["bias"]]
    values = [constant_value(editor, operand) for operand in affine]
    if len(named["normalized_shape"]) != 1 or not is_tensor(named["input"]):
        return None
    if any(o is not None and v is None for o, v in zip(affine, values, strict=True)):
        return None
    source = next((o for o in affine if o is not None), None)
    name = weight_name(editor, source) if source is not None else f"{node.name}.weight"
    return ChannelNorm((named["input"],), values[0], values[1], named["eps"], name)


def _elementwise(editor: ProgramEditor, node: Node) -> Elementwise | None:
    tensors = [n for n in node.all_input_nodes if is_tensor(n)]
    values = {n: constant_value(editor, n) for n in tensors}
    constants = {n: v for n, v in values.items() if v is not None}
    operands = tuple(n for n in tensors if n not in constants)
    return Elementwise(operands, constants) if operands and is_tensor(node) else None


@dataclass(frozen=True)
class Placed:
    """A value as an arrangement of its frame: tensor `anchor`, or step `anchor`'s counterpart."""

    anchor: Node
    sizes: tuple[Size, ...]  # of the frame
    axes: Axes


class Plan:
    """The places of all values in a graph, and the steps on placed values.

    Nodes in `pinned` keep their memory: they are neither placed nor frames. Steps in `frames` are
    not placed, but start a frame of their own.
    """

    def __init__(self, editor: ProgramEditor, pinned: set[Node], frames: set[Node]) -> None:
        self._editor, self._pinned = editor, pinned
        self.placed: dict[Node, Placed] = {}
        self.steps: dict[Node, Step] = {}
        self.joined: dict[Node, Node] = {}  # a map -> the addition that is merged into it
        self.refusals: dict[Node, str] = {}
        for node in editor.graph.nodes:
            if node.op == "call_function" and is_tensor(node) and node not in pinned | frames:
                self._visit(node)

    def place(self, node: Node) -> Placed:
        """Return the place of `node`; a value without a place is its own frame."""
        if node in self.placed:
            return self.placed[node]
        sizes = sizes_of(fake_value(node).shape)
        return Placed(node, sizes, identity_axes(sizes))

    def anchors(self, step: Node) -> set[Node]:
        """Return the frames that a step reads."""
        return {self.place(operand).anchor for operand in self.steps[step].operands}

    def chains(self) -> Iterator[Chain]:
        """Yield the groups of connected steps that involve a transposition."""
        groups: list[tuple[set[Node], list[Node]]] = []  # anchors and steps
        for node in self.steps:
            anchors, members = {node, *self.anchors(node)}, [node]
            for group in [g for g in groups if not anchors.isdisjoint(g[0])]:
                groups.remove(group)
                anchors, members = anchors | group[0], [*group[1], *members]
            groups.append((anchors, members))
        moved = {p.anchor for p in self.placed.values() if not is_row_major(p.axes)}
        for anchors, members in groups:
            if not moved.isdisjoint(anchors):
                yield Chain(self, members)

    def _visit(self, node: Node) -> None:
        if is_layout(node):
            base = self._frame(node.args[0])  # type: ignore[arg-type]
            axes = follow(node, base.axes) if base else None
            if base and axes is not None:
                self.placed[node] = replace(base, axes=axes)
            return
        step = read_step(self._editor, node)
        if isinstance(step, str):
            operands = [self._frame(operand) for operand in node.all_input_nodes]
            if any(place and not is_row_major(place.axes) for place in operands):
                self.refusals[node] = step
            return
        place = None if step is None else self._counterpart(node, step)
        if isinstance(place, str):
            self.refusals[node] = place
        elif step is not None and place is not None:
            if isinstance(step, Elementwise):
                step = self._with_bias(node, step, self.place(step.operands[0])) or step
            self.placed[node], self.steps[node] = place, step

    def _frame(self, node: Node) -> Placed | None:
        if not is_tensor(node) or node in self._pinned or self._editor.constant(node) is not None:
            return None
        place = self.place(node)
        return None if 0 in place.sizes else place

    def _leads_on(self, place: Placed) -> bool:
        """Return whether a step on this value may join a chain; otherwise it starts a frame."""
        return place.axes != identity_axes(place.sizes) or place.anchor in self.steps

    def _counterpart(self, node: Node, step: Step) -> Placed | str | None:
        """Return the place of a step's result, or a reason, or None if there is none to give."""
        if isinstance(step, Elementwise):
            return self._elementwise(node, step)
        base = self._frame(step.operands[0])
        if base is None or not self._leads_on(base):
            return None
        if isinstance(step, Affine):
            return self._affine(node, step, base)
        whole_last = whole_axis(base.axes[-1], base.sizes) is not None
        return replace(base, anchor=node) if whole_last else None

    def _affine(self, node: Node, step: Affine, base: Placed) -> Placed | str | None:
        axis = whole_axis(base.axes[step.axis], base.sizes)
        if axis is None:
            mixes = f"the axis it contracts is not one whole axis of {base.anchor}"
            return None if is_row_major(base.axes) else mixes
        rank = len(base.sizes)
        if not (axis == rank - 1 or (axis == 1 and rank in _IMAGES)):
            return f"it contracts axis {axis} of {base.anchor}, which is neither channels nor last"
        sizes, axes = list(base.sizes), list(base.axes)
        sizes[axis] = step.weight.shape[0]
        axes[step.axis] = whole(axis, sizes[axis])
        return Placed(node, tuple(sizes), tuple(axes))

    def _elementwise(self, node: Node, step: Elementwise) -> Placed | None:
        places = [place for operand in step.operands if (place := self._frame(operand))]
        sizes = {sizes_of(fake_value(n).shape) for n in (node, *step.operands)}
        if len(places) < len(step.operands) or len(sizes) != 1 or () in sizes:
            return None
        if len({(p.axes, p.sizes) for p in places}) != 1 or not any(map(self._leads_on, places)):
            return None
        if any(v.dim() and relaid(v, places[0]) is None for v in step.constants.values()):
            return None
        return replace(places[0], anchor=node)

    def _with_bias(self, node: Node, step: Elementwise, place: Placed) -> Affine | None:
        """Read map(x) + b as one map, if b is constant with one value per feature."""
        source, inner = step.operands[0], self.steps.get(place.anchor)
        if node.target is not aten.add.Tensor or not isinstance(inner, Affine):
            return None
        while source is not place.anchor and len(source.users) == 1:
            source = source.all_input_nodes[0]
        alpha = bound_arguments(node)["alpha"]
        if len(source.users) > 1 or len(step.constants) != 1 or not isinstance(alpha, (int, float)):
            return None
        [(held, constant)] = step.constants.items()
        if constant.dtype != inner.weight.dtype or (alpha != 1 and held is node.args[0]):
            return None
        base = self.place(inner.operands[0])
        laid, axis = relaid(constant, place), base.axes[inner.axis][0].axis
        if laid is None or not laid.numel() == laid.shape[axis] == inner.weight.shape[0]:
            return None
        bias = laid.double().reshape(-1) * alpha
        bias = bias if inner.bias is None else bias + inner.bias.double()
        self.joined[place.anchor] = node
        return replace(inner, bias=bias.to(constant.dtype))


class Chain:
    """Connected steps in graph order, rewritten all together or not at all, and the gain."""

    def __init__(self, plan: Plan, members: list[Node]) -> None:
        self.plan, self.members, self._within = plan, members, set(members)
        self.maps = [node for node in members if isinstance(plan.steps[node], Affine)]
        own = [node for node, place in plan.placed.items() if place.anchor in self._within]
        self.exits = [node for node in own if self._is_read(node)]  # to be arranged from a frame
        self.removed = self._count_removed()
        self.added = sum(not is_row_major(plan.placed[node].axes) for node in self.exits)

    def useless(self) -> list[Node]:
        """Return the steps that lead to no result in its frame's own order; else all steps."""
        places, joined = self.plan.placed, self.plan.joined
        useful = {places[n].anchor for n in self.exits if is_row_major(places[n].axes)}
        for node in reversed(self.members):
            if node in useful or joined.get(node) in useful:
                useful |= {node, *self.plan.anchors(node)}
        return [node for node in self.members if node not in useful] or self.members

    def _is_read(self, node: Node) -> bool:
        """Return whether a user needs `node` itself rather than its frame."""
        placed, steps = self.plan.placed, self.plan.steps
        anchor = placed[node].anchor
        return any(
            user not in placed or not (user in steps or placed[user].anchor is anchor)
            for user in _readers(node)
        )

    def _count_removed(self) -> int:
        """Count the transpositions that are not needed if the steps run in their frames."""
        plan, dead, count = self.plan, set(self._within), 0
        sources = {anchor for n in self.members for anchor in plan.anchors(n)}
        for node in reversed(plan.placed):
            place = plan.placed[node]
            if node in plan.steps or place.anchor not in self._within | sources:
                continue
            if place.anchor in self._within or dead.issuperset(_readers(node)):
                dead.add(node)
                count += not same_order(plan.place(node.args[0]).axes, place.axes)  # type: ignore[arg-type]
        return count


def _readers(node: Node) -> Iterator[Node]:
    """Yield the users that read elements; for a native norm, the users that select its results."""
    for user in node.users:
        if user.target is aten.native_layer_norm.default:
            yield from user.users
        elif not is_dtype_assertion(user):
            yield user


def relaid(value: Tensor, place: Placed) -> Tensor | None:
    """Rearrange a constant that broadcasts to a placed value so that it broadcasts to its frame.

    Return None if it is constant along only a part of a frame's axis.
    """
    if value.dim() > len(place.axes):
        return None
    value = value.reshape((1,) * (len(place.axes) - value.dim()) + tuple(value.shape))
    varies = {d: s != 1 for group, s in zip(place.axes, value.shape, strict=True) for d in group}
    if any(varies[d] and not isinstance(d.size, int) for d in varies):
        return None
    sizes = []
    for axis, size in enumerate(place.sizes):
        along = {varies[d] for d in varies if d.axis == axis}
        if len(along) > 1:
            return None
        sizes.append(size if True in along else 1)
    digits = flat(place.axes)
    parts = [d.size if varies[d] else 1 for d in digits]
    return (
        value.reshape(parts)
        .permute([digits.index(d) for d in in_frame_order(place.axes)])
        .reshape(sizes)
    )
