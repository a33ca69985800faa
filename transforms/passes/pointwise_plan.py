"""Decides which pointwise chains are computed in the layout of the tensor they started from.

Every value is *placed*: seen as another tensor, its frame, with axes rearranged. Layout operators
keep the frame and rearrange; a step (affine map, norm, elementwise) on a placed value has a twin
that does the same in the frame itself, along the frame's own axis. A set of connected steps pays
when computing the twins needs fewer transpositions than the layout operators that become dead.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from transforms.editor import fake_value
from transforms.passes.axis_provenance import (
    Axes,
    Size,
    identity_axes,
    is_row_major,
    same_order,
    sizes_of,
    whole,
    whole_axis,
)
from transforms.passes.layout_operators import (
    follow,
    is_dtype_assertion,
    is_layout,
    is_tensor,
    pinned_nodes,
)
from transforms.passes.pointwise_steps import Affine, ChannelNorm, Elementwise, Step, read_step

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch.fx import Node

    from transforms.editor import ProgramEditor

__all__ = ["BATCHED_MATRIX", "Chain", "Placed", "Plan", "make_plan"]

aten = torch.ops.aten

BATCHED_MATRIX = 3  # rank
_IMAGES = (4, 5)  # ranks: batch, channels, two or three axes of positions


@dataclass(frozen=True)
class Placed:
    """A value as an arrangement of its frame: the tensor `anchor`, or the twin of step `anchor`."""

    anchor: Node
    sizes: tuple[Size, ...]  # of the frame
    axes: Axes

    @property
    def rearranged(self) -> bool:
        """Whether the value differs from the frame at all."""
        return self.axes != identity_axes(self.sizes)


@dataclass
class Chain:
    """Connected steps that are rewritten together or not at all."""

    steps: list[Node]
    exits: list[Node]  # values that others use and that must be made from a frame
    removed: int  # transpositions that become dead
    added: int  # transpositions at the exits


@dataclass
class Plan:
    """The chains to rewrite, and why the others stay."""

    placed: dict[Node, Placed] = field(default_factory=dict)
    steps: dict[Node, Step] = field(default_factory=dict)
    refusals: dict[Node, str] = field(default_factory=dict)
    chains: list[Chain] = field(default_factory=list)

    def place(self, node: Node) -> Placed:
        """Where `node` is placed; a value without a place is its own frame."""
        if node in self.placed:
            return self.placed[node]
        sizes = sizes_of(fake_value(node).shape)
        return Placed(node, sizes, identity_axes(sizes))


def make_plan(editor: ProgramEditor, *, left_products: bool) -> Plan:
    """The rewrites that pay.

    A step that gains nothing in one frame may gain in a nearer one, so it is then taken for a
    frame of its own and everything is placed anew, until nothing is left that does not pay.
    """
    planner = _Planner(editor, left_products=left_products)
    refusals: dict[Node, str] = {}
    while True:
        plan = planner.place_all()
        unpaid: list[Node] = []
        for members in _connected(plan):
            if not _could_pay(plan, members):
                continue
            chain = _chain(plan, members)
            if chain is not None and chain.removed > chain.added:
                plan.chains.append(chain)
                continue
            rest = _unprofitable(plan, members)
            unpaid += _first(plan, rest)
            refusals |= {n: _why_not(chain) for n in rest if isinstance(plan.steps[n], Affine)}
        if not unpaid:
            rewritten = {node for chain in plan.chains for node in chain.steps}
            found = refusals | plan.refusals
            plan.refusals = {n: why for n, why in found.items() if n not in rewritten}
            return plan
        planner.frames.update(unpaid)


class _Planner:
    """Places every value of a graph."""

    def __init__(self, editor: ProgramEditor, *, left_products: bool) -> None:
        self._left_products = left_products
        self.frames: set[Node] = set()  # steps that start a frame of their own
        self._editor = editor
        self._pinned = pinned_nodes(editor)
        self._plan = Plan()
        self._read: dict[Node, Step | str | None] = {}

    def place_all(self) -> Plan:
        self._plan = Plan()
        for node in self._editor.graph.nodes:
            if node.op == "call_function" and self._may_be_placed(node):
                self._visit(node)
        return self._plan

    def _may_be_placed(self, node: Node) -> bool:
        return is_tensor(node) and node not in self._pinned and node not in self.frames

    def _place(self, node: Node) -> Placed | None:
        """The place of an operand; None where it cannot be a frame."""
        empty = is_tensor(node) and any(s == 0 for s in sizes_of(fake_value(node).shape))
        if not is_tensor(node) or node in self._pinned or empty:
            return None
        return None if self._editor.constant(node) is not None else self._plan.place(node)

    def _visit(self, node: Node) -> None:
        if is_layout(node):
            base = self._place(node.args[0])  # type: ignore[arg-type]
            axes = follow(node, base.axes) if base else None
            if base and axes is not None:
                self._plan.placed[node] = Placed(base.anchor, base.sizes, axes)
            return
        if node not in self._read:
            self._read[node] = read_step(self._editor, node)
        step = self._read[node]
        if isinstance(step, str):
            if any(self._transposed(operand) for operand in node.all_input_nodes):
                self._plan.refusals[node] = step
        elif step is not None:
            placed = self._twin(node, step)
            if isinstance(placed, Placed):
                self._plan.placed[node], self._plan.steps[node] = placed, step
            elif placed is not None:
                self._plan.refusals[node] = placed

    def _transposed(self, node: Node) -> bool:
        placed = self._place(node)
        return placed is not None and not is_row_major(placed.axes)

    def _twin(self, node: Node, step: Step) -> Placed | str | None:
        """The place of a step's result; a reason, or None where there is nothing to say."""
        if isinstance(step, Elementwise):
            return self._elementwise(node, step)
        base = self._place(step.operand)
        if base is None or not self._leads_on(base):
            return None
        position = step.axis if isinstance(step, Affine) else len(base.axes) - 1
        axis = whole_axis(base.axes[position], base.sizes)
        if isinstance(step, ChannelNorm):
            return None if axis is None else Placed(node, base.sizes, base.axes)
        if axis is None:
            mixes = not is_row_major(base.axes)
            return (
                f"the axis it contracts is not one whole axis of {base.anchor}" if mixes else None
            )
        rank = len(base.sizes)
        left = self._left_products and axis == rank - 2 and rank <= BATCHED_MATRIX
        if not (axis == rank - 1 or left or (axis == 1 and rank in _IMAGES)):
            return f"it contracts axis {axis} of {base.anchor}, which is neither channels nor last"
        features = step.weight.shape[0]
        sizes = (*base.sizes[:axis], features, *base.sizes[axis + 1 :])
        axes = (*base.axes[:position], whole(axis, features), *base.axes[position + 1 :])
        return Placed(node, sizes, axes)

    def _leads_on(self, place: Placed) -> bool:
        """Whether a step on this value may belong to a chain; else it would start a frame."""
        return place.rearranged or place.anchor in self._plan.steps

    def _elementwise(self, node: Node, step: Elementwise) -> Placed | None:
        places = [self._place(operand) for operand in step.operands]
        first = places[0]
        shape = sizes_of(fake_value(node).shape)
        if first is None or not shape:
            return None
        if not any(place and self._leads_on(place) for place in places):
            return None
        for operand, place in zip(step.operands, places, strict=True):
            if place is None or (place.axes, place.sizes) != (first.axes, first.sizes):
                return None
            if sizes_of(fake_value(operand).shape) != shape:
                return None
        for value in step.constants.values():
            if value.dim() and relaid(value, first) is None:
                return None
        return Placed(node, first.sizes, first.axes)


def relaid(value: torch.Tensor, place: Placed) -> torch.Tensor | None:
    """A constant that broadcasts to a placed value, laid out to broadcast to its frame instead.

    None where it is constant along a part of a frame's axis only.
    """
    if value.dim() > len(place.axes):
        return None
    value = value.reshape((1,) * (len(place.axes) - value.dim()) + tuple(value.shape))
    digits, parts = [], []
    for group, size in zip(place.axes, value.shape, strict=True):
        for digit in group:
            if size != 1 and not isinstance(digit.size, int):
                return None
            digits.append(digit)
            parts.append(digit.size if size != 1 else 1)
    order = sorted(
        range(len(digits)), key=lambda i: (digits[i].axis, _minor_last(digits[i].stride))
    )
    sizes = []
    for axis, size in enumerate(place.sizes):
        held = [part != 1 for digit, part in zip(digits, parts, strict=True) if digit.axis == axis]
        if any(held) and not all(held):
            return None
        sizes.append(size if any(held) else 1)
    return value.reshape(parts).permute(order).reshape(sizes)


def _minor_last(stride: Size) -> int:
    return -stride if isinstance(stride, int) else 0  # a symbolic digit is broadcast: no matter


def _connected(plan: Plan) -> list[list[Node]]:
    """The steps in groups that share a frame or hand values to each other, in graph order."""
    group: dict[Node, Node] = {}

    def root(node: Node) -> Node:
        while group.get(node, node) is not node:
            node = group[node]
        return node

    for node in plan.steps:
        for operand in _operands(plan, node):
            group[root(plan.place(operand).anchor)] = root(node)
    groups = defaultdict(list)
    for node in plan.steps:
        groups[root(node)].append(node)
    return list(groups.values())


def _operands(plan: Plan, node: Node) -> tuple[Node, ...]:
    step = plan.steps[node]
    return step.operands if isinstance(step, Elementwise) else (step.operand,)


def _could_pay(plan: Plan, members: list[Node]) -> bool:
    """Whether there is an affine map among the steps, and a transposition before or behind it."""
    anchors = set(members)
    anchors |= {plan.place(o).anchor for n in members for o in _operands(plan, n)}
    return any(isinstance(plan.steps[node], Affine) for node in members) and any(
        p.anchor in anchors and not is_row_major(p.axes) for p in plan.placed.values()
    )


def _chain(plan: Plan, members: list[Node]) -> Chain | None:
    """The chain of `members` if all its results can be had; None if some steps do not belong."""
    useful = _useful(plan, members)
    exits = _exits(plan, members)
    if len(useful) == len(members) or (not useful and len(exits) == 1):
        added = sum(not is_row_major(plan.place(n).axes) for n in exits)
        return Chain(members, exits, _removed(plan, members), added)
    return None


def _useful(plan: Plan, members: list[Node]) -> set[Node]:
    """The steps that lead to some result which stands in its frame's own order."""
    useful = {
        plan.place(node).anchor
        for node in _exits(plan, members)
        if is_row_major(plan.place(node).axes)
    }
    for node in reversed(members):
        if node in useful:
            useful |= {plan.place(operand).anchor for operand in _operands(plan, node)}
    return useful.intersection(members)


def _exits(plan: Plan, members: Iterable[Node]) -> list[Node]:
    anchors = set(members)
    return [
        node
        for node, place in plan.placed.items()
        if place.anchor in anchors and any(not _absorbed(plan, node, u) for u in _users(node))
    ]


def _absorbed(plan: Plan, node: Node, user: Node) -> bool:
    """Whether `user` takes `node` from its frame, not as it is."""
    if user not in plan.placed:
        return False
    return user in plan.steps or plan.placed[user].anchor is plan.place(node).anchor


def _users(node: Node) -> Iterator[Node]:
    for user in node.users:
        if is_dtype_assertion(user):
            continue
        if user.target is aten.native_layer_norm.default:
            yield from user.users
        else:
            yield user


def _removed(plan: Plan, members: list[Node]) -> int:
    """How many transpositions nobody needs once the steps are done in their frames."""
    anchors = set(members)
    sources = {plan.place(o).anchor for n in members for o in _operands(plan, n)} - anchors
    dead, count = set(members), 0
    for node in reversed(plan.placed):
        anchor = plan.placed[node].anchor
        if node in plan.steps or anchor not in anchors | sources:
            continue
        if anchor in anchors or all(user in dead for user in _users(node)):
            dead.add(node)
            before = plan.place(node.args[0])  # type: ignore[arg-type]
            count += not same_order(before.axes, plan.placed[node].axes)
    return count


def _unprofitable(plan: Plan, members: list[Node]) -> set[Node]:
    """The steps of a chain that does not pay which are to be left; all, if none is useless."""
    useful = _useful(plan, members)
    return set(members) - useful or set(members)


def _first(plan: Plan, steps: set[Node]) -> list[Node]:
    """Those of `steps` that take nothing from the others."""
    return [n for n in steps if not any(plan.place(o).anchor in steps for o in _operands(plan, n))]


def _why_not(chain: Chain | None) -> str:
    if chain is None:
        return "its result is needed in another order than that of the tensor it comes from"
    return f"a rewrite would remove {chain.removed} transpositions and add {chain.added}: no gain"
