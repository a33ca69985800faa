"""Finds chains of pointwise steps that are cheaper in the layout of the tensor they started from.

Every value is *placed*: seen as another tensor, its frame, with axes rearranged. Layout operators
keep the frame and rearrange; a step (affine map, norm, elementwise) on a placed value has a twin
that does the same in the frame itself, along the frame's own axis. A chain, a set of connected
steps, pays when its twins need fewer transpositions than there are now.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from transforms.graph.editor import fake_value
from transforms.graph.schemas import bound_arguments
from transforms.passes.axis_provenance import (
    Axes,
    Size,
    flat,
    identity_axes,
    in_frame_order,
    is_row_major,
    same_order,
    sizes_of,
    whole,
    whole_axis,
)
from transforms.passes.layout_operators import follow, is_dtype_assertion, is_layout, is_tensor
from transforms.passes.pointwise_steps import Affine, Elementwise, Step, read_step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.fx import Node

    from transforms.graph.editor import ProgramEditor

aten = torch.ops.aten

_IMAGES = (4, 5)  # ranks: batch, channels, two or three axes of positions


@dataclass(frozen=True)
class Placed:
    """A value as an arrangement of its frame: the tensor `anchor`, or the twin of step `anchor`."""

    anchor: Node
    sizes: tuple[Size, ...]  # of the frame
    axes: Axes


class Plan:
    """Where every value of a graph stands, and what the steps on the placed ones are.

    Args:
        editor: the program; not changed.
        pinned: nodes that stay as they are in memory: neither placed nor a frame.
        frames: steps that are not placed, but start a frame of their own.
    """

    def __init__(self, editor: ProgramEditor, pinned: set[Node], frames: set[Node]) -> None:
        self._editor, self._pinned = editor, pinned
        self.placed: dict[Node, Placed] = {}
        self.steps: dict[Node, Step] = {}
        self.joined: dict[Node, Node] = {}  # a map, by the addition that is read as a map with it
        self.refusals: dict[Node, str] = {}
        for node in editor.graph.nodes:
            if node.op == "call_function" and is_tensor(node) and node not in pinned | frames:
                self._visit(node)

    def place(self, node: Node) -> Placed:
        """Where `node` is placed; a value without a place is its own frame."""
        if node in self.placed:
            return self.placed[node]
        sizes = sizes_of(fake_value(node).shape)
        return Placed(node, sizes, identity_axes(sizes))

    def anchors(self, step: Node) -> set[Node]:
        """The frames that a step reads."""
        return {self.place(operand).anchor for operand in self.steps[step].operands}

    def chains(self) -> Iterator[Chain]:
        """The connected steps with a map among them and a transposition somewhere about them."""
        groups: list[tuple[set[Node], list[Node]]] = []  # anchors and steps
        for node in self.steps:
            anchors, members = {node, *self.anchors(node)}, [node]
            for group in [g for g in groups if not anchors.isdisjoint(g[0])]:
                groups.remove(group)
                anchors, members = anchors | group[0], [*group[1], *members]
            groups.append((anchors, members))
        moved = {p.anchor for p in self.placed.values() if not is_row_major(p.axes)}
        for anchors, members in groups:
            maps = any(isinstance(self.steps[node], Affine) for node in members)
            if maps and not moved.isdisjoint(anchors):
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
        place = None if step is None else self._twin(node, step)
        if isinstance(place, str):
            self.refusals[node] = place
        elif step is not None and place is not None:
            if isinstance(step, Elementwise):
                step = self._with_bias(node, step, self.place(step.operands[0])) or step
            self.placed[node], self.steps[node] = place, step

    def _frame(self, node: Node) -> Placed | None:
        """The place of an operand; None where it cannot be a frame."""
        if not is_tensor(node) or node in self._pinned or self._editor.constant(node) is not None:
            return None
        place = self.place(node)
        return None if 0 in place.sizes else place

    def _leads_on(self, place: Placed) -> bool:
        """Whether a step on this value may belong to a chain; else it would start a frame."""
        return place.axes != identity_axes(place.sizes) or place.anchor in self.steps

    def _twin(self, node: Node, step: Step) -> Placed | str | None:
        """The place of a step's result; a reason, or None where there is nothing to say."""
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
        """map(x) + b, with a constant b of one value a feature, read as one map."""
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
    """Connected steps, rewritten together or not at all, and whether that pays.

    Args:
        plan: where everything is placed.
        members: the steps, in graph order.
    """

    def __init__(self, plan: Plan, members: list[Node]) -> None:
        self.plan, self.members, self._within = plan, members, set(members)
        self.maps = [node for node in members if isinstance(plan.steps[node], Affine)]
        own = [node for node, place in plan.placed.items() if place.anchor in self._within]
        self.exits = [node for node in own if self._is_read(node)]  # to be made from a frame
        self.removed = self._count_removed()
        self.added = sum(not is_row_major(plan.placed[node].axes) for node in self.exits)

    def useless(self) -> list[Node]:
        """The steps that lead to no result which stands in its frame's own order; else all."""
        places, joined = self.plan.placed, self.plan.joined
        useful = {places[n].anchor for n in self.exits if is_row_major(places[n].axes)}
        for node in reversed(self.members):
            if node in useful or joined.get(node) in useful:
                useful |= {node, *self.plan.anchors(node)}
        return [node for node in self.members if node not in useful] or self.members

    def _is_read(self, node: Node) -> bool:
        """Whether someone takes `node` as it is, not from its frame."""
        placed, steps = self.plan.placed, self.plan.steps
        anchor = placed[node].anchor
        return any(
            user not in placed or not (user in steps or placed[user].anchor is anchor)
            for user in _readers(node)
        )

    def _count_removed(self) -> int:
        """How many transpositions nobody needs once the steps are done in their frames."""
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
    """The users that look at elements; of a native norm, what picks its results."""
    for user in node.users:
        if user.target is aten.native_layer_norm.default:
            yield from user.users
        elif not is_dtype_assertion(user):
            yield user


def relaid(value: torch.Tensor, place: Placed) -> torch.Tensor | None:
    """A constant that broadcasts to a placed value, laid out to broadcast to its frame instead.

    None where it is constant along a part of a frame's axis only.
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
