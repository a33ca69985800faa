"""Compute pointwise affine maps in the layout of their input, without transpositions around."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import torch
from torch.fx import Node

from transforms.graph.editor import ProgramEditor, fake_value
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.layouts import Unfit, downstream_values, same_layout
from transforms.graph.traced import write
from transforms.passes.axes import (
    Digit,
    Size,
    flat,
    in_frame_order,
    is_dtype_assertion,
    is_row_major,
    pinned_nodes,
    plain,
    sizes_of,
)
from transforms.passes.pointwise_chains import (
    Affine,
    Chain,
    ChannelNorm,
    Elementwise,
    Placed,
    Plan,
    relaid,
    weight_name,
)

aten = torch.ops.aten

_NAMED = 4  # the most maps that a message lists by name

_WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}  # for norms


class PointwiseAffineToConv(GraphPass):
    """Replaces Permute(Linear(Permute(x))) with a 1x1 Conv(x), or with Linear(x).

    Linear, mm, matmul and addmm by a constant matrix, elementwise operators and layer norms over
    the channels are followed through layout operators. If every axis of such a value comes from the
    axes of one earlier tensor, its frame, the operation is computed in the frame: along axis 1 of a
    tensor of rank 4 or 5 as a convolution with a 1x1 kernel, along the last axis as a linear; a
    layer norm along another axis by its formula (Ba et al., "Layer Normalization", 2016), in
    float32 for half precision. A constant added to a map becomes its bias.

    Chains are rewritten as a whole until none is left that removes more transpositions than it
    adds. A step that gains nothing in one frame then starts a frame of its own.

    Refuses, with a reason, affine maps after a transposition if their weight, bias or addend is not
    constant, if they contract anything but one whole axis of the frame as above, or if their result
    is not needed in the frame's order. Values whose storage is read by strides are never moved.
    """

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Rewrite chains until none is left that pays."""
        refused = compute_in_frames(editor, journal, frozenset(), lambda chain: bool(chain.maps))
        for node, reason in refused.items():
            if not node._erased:
                journal.refused(node, reason)


def compute_in_frames(
    editor: ProgramEditor,
    journal: Journal,
    fixed: AbstractSet[Node],
    wanted: Callable[[Chain], bool],
) -> dict[Node, str]:
    """Rewrite `wanted` chains until none is left that pays; nodes in `fixed` are not moved.

    Return the remaining maps with the reasons.
    """
    pinned, frames = pinned_nodes(editor), set(fixed)
    refused: dict[Node, str] = {}
    while True:
        plan = Plan(editor, pinned, frames)
        useless: dict[Node, str] = {}
        for chain in filter(wanted, plan.chains()):
            reason = _rewrite(editor, chain, journal)
            if reason is None:
                break
            useless |= dict.fromkeys(chain.useless(), reason)
        else:
            if not useless:
                return {**refused, **plan.refusals}
        frames |= {n for n in useless if useless.keys().isdisjoint(plan.anchors(n))}
        refused |= {n: why for n, why in useless.items() if isinstance(plan.steps[n], Affine)}


def _rewrite(editor: ProgramEditor, chain: Chain, journal: Journal) -> str | None:
    """Compute a chain's steps in their frames, or leave it unchanged and return the reason."""
    counted = f"a rewrite would remove {chain.removed} transpositions and add {chain.added}"
    if chain.removed <= chain.added:
        return f"{counted}: no gain"
    maps = _listed(chain.maps or chain.members)
    try:
        _Writer(editor, chain).write()
    except Unfit as fault:
        return str(fault)
    saved = f"{chain.removed - chain.added} transpositions fewer"
    journal.changed(f"computed {maps} in the layout of their input: {saved}")
    return None


def _listed(nodes: list[Node]) -> str:
    names = [node.name for node in nodes]
    if len(names) <= _NAMED:
        return ", ".join(names)
    return f"{names[0]} to {names[-1]}, {len(names)} calls,"


class _Writer:
    """Writes the counterparts of one chain into the graph; the chain's users then read them."""

    def __init__(self, editor: ProgramEditor, chain: Chain) -> None:
        self._editor, self._chain, self._plan = editor, chain, chain.plan
        self._call = editor.call
        self._counterparts: dict[Node, Node] = {}
        self._returned: set[Node] = set()  # steps whose counterpart's storage is returned

    def write(self) -> None:
        """Replace the chain; raise Unfit, with the graph unchanged, if a user needs old strides."""
        editor, made = self._editor, self._make()
        members = set(self._chain.members)
        old = {n: p for n, p in self._plan.placed.items() if p.anchor in members}
        stays = {node: fake_value(node) for node in old}
        try:
            values = downstream_values(editor, stays | {n: fake_value(made[n]) for n in made})
        except Unfit:
            editor.graph.eliminate_dead_code()  # remove the counterparts, which nothing reads yet
            editor.drop_unused_constants()
            raise
        editor.set_values({node: value for node, value in values.items() if node not in old})
        self._hand_over(old, made)

    def _make(self) -> dict[Node, Node]:
        """Insert all steps' counterparts; return the replacement of each node that others use."""
        members, exits = set(self._chain.members), set(self._chain.exits)
        made: dict[Node, Node] = {}
        for node, place in self._plan.placed.items():
            if node in members and node not in self._plan.joined:
                self._counterparts[node] = self._counterpart(node)
            if node in exits:
                made[node] = self._arranged(place, node)
        return made

    def _hand_over(self, old: dict[Node, Placed], made: dict[Node, Node]) -> None:
        """Make users read the new values, and remove the chain with its dtype assertions."""
        graph = self._editor.graph
        for node, place in old.items():
            for user in [u for u in node.users if is_dtype_assertion(u)]:
                user.replace_input_with(node, self._frame(place))
        for node, fresh in made.items():
            node.replace_all_uses_with(fresh)
        for node in reversed(old):
            if not node.users:  # dead code removal would keep possibly random calls
                graph.erase_node(node)
        graph.eliminate_dead_code()

    def _counterpart(self, node: Node) -> Node:
        step = self._plan.steps[node]
        if isinstance(step, Elementwise):
            return self._elementwise(node, step)
        base = self._plan.place(step.operands[0])
        frame = self._frame(base)
        if isinstance(step, Affine):
            return self._affine(node, step, frame, base.axes[step.axis][0].axis)
        axis = base.axes[-1][0].axis
        if axis == len(base.sizes) - 1:
            return self._last_axis_norm(node, frame)
        return self._channel_norm(node, step, frame, axis)  # type: ignore[arg-type]

    def _frame(self, place: Placed) -> Node:
        return self._counterparts.get(place.anchor, place.anchor)

    def _constant(self, name: str, value: torch.Tensor) -> Node:
        return self._editor.add_constant(name, value.clone(memory_format=torch.contiguous_format))

    def _affine(self, node: Node, step: Affine, frame: Node, axis: int) -> Node:
        last, bias = fake_value(frame).dim() - 1, None
        if step.bias is not None:
            bias = self._constant(f"{step.name}_pointwise_bias", step.bias)
        if axis == last:
            held = self._constant(f"{step.name}_pointwise", step.weight)
            return self._call(aten.linear.default, frame, held, bias, like=node)
        ones, zeros = [1] * (last - 1), [0] * (last - 1)
        kernel = step.weight.reshape(*step.weight.shape, *ones)
        held = self._constant(f"{step.name}_pointwise", kernel)
        geometry = (ones, zeros, ones, False, zeros, 1)
        return self._call(aten.convolution.default, frame, held, bias, *geometry, like=node)

    def _elementwise(self, node: Node, step: Elementwise) -> Node:
        place = self._plan.place(node)
        swapped = {operand: self._frame(self._plan.place(operand)) for operand in step.operands}
        for operand, value in step.constants.items():
            laid = relaid(value, place) if value.dim() else None
            if laid is not None and not torch.equal(laid, value):
                name = weight_name(self._editor, operand)
                swapped[operand] = self._constant(f"{name}_relaid", laid)
        arguments = (node.args, node.kwargs)
        args, kwargs = torch.fx.map_arg(arguments, lambda n: swapped.get(n, n))
        return self._call(node.target, *args, like=node, **kwargs)

    def _last_axis_norm(self, node: Node, frame: Node) -> Node:
        """Apply the same operator to the frame; for a native norm, `node` is its getitem."""
        if node.target is aten.layer_norm.default:
            return self._call(node.target, frame, *node.args[1:], like=node, **node.kwargs)
        norm: Any = node.args[0]
        fresh = self._call(norm.target, frame, *norm.args[1:], like=norm, **norm.kwargs)
        return self._call(operator.getitem, fresh, 0, like=node)

    def _channel_norm(self, node: Node, step: ChannelNorm, frame: Node, axis: int) -> Node:
        def call(target: Any, *args: Any, **kwargs: Any) -> Node:
            return self._call(target, *args, like=node, **kwargs)

        value, dtype = fake_value(frame), fake_value(node).dtype
        wide = _WIDE.get(value.dtype, value.dtype)
        x = frame if wide == value.dtype else call(aten._to_copy.default, frame, dtype=wide)
        both = call(aten.var_mean.correction, x, [axis], correction=0, keepdim=True)
        var, mean = (call(operator.getitem, both, index) for index in (0, 1))
        scale = call(aten.rsqrt.default, call(aten.add.Tensor, var, step.eps))
        y = call(aten.mul.Tensor, call(aten.sub.Tensor, x, mean), scale)
        shape = [-1] + [1] * (value.dim() - 1 - axis)
        for constant, apply in ((step.weight, aten.mul.Tensor), (step.bias, aten.add.Tensor)):
            if constant is not None:
                held = self._constant(f"{step.name}_channels", constant.to(wide).reshape(shape))
                y = call(apply, y, held)
        return y if wide == dtype else call(aten._to_copy.default, y, dtype=dtype)

    def _arranged(self, place: Placed, node: Node) -> Node:
        """Return the value of `node`, arranged from the counterpart that is its frame."""
        frame = self._frame(place)
        value: Node = write(self._editor, functools.partial(_arranged, place), frame, like=node)
        if any(user.op == "output" for user in node.users):
            if place.anchor in self._returned:
                return self._cloned(value, node)
            self._returned.add(place.anchor)
        same = same_layout(fake_value(value), fake_value(node))
        return value if same or _is_contiguous(fake_value(value)) else self._cloned(value, node)

    def _cloned(self, value: Node, like: Node) -> Node:
        return self._call(
            aten.clone.default, value, like=like, memory_format=torch.contiguous_format
        )


def _arranged(place: Placed, value: torch.Tensor) -> torch.Tensor:
    """Arrange a value of the frame like the value that is placed in it."""

    def size(digit: Digit) -> Any:
        if isinstance(digit.size, int):
            return digit.size
        others = plain(place.sizes[digit.axis] / digit.size)  # a number: see `regrouped`
        whole = value.shape[digit.axis]
        return whole if others == 1 else whole // int(others)

    arranged, order = value, in_frame_order(place.axes)
    if not is_row_major(place.axes):
        arranged = _viewed(arranged, [size(digit) for digit in order])
        arranged = arranged.permute([order.index(digit) for digit in flat(place.axes)])
    return _viewed(arranged, [math.prod(map(size, group)) for group in place.axes])


def _viewed(value: torch.Tensor, sizes: Sequence[Any]) -> torch.Tensor:
    if sizes_of(value.shape) == sizes_of(sizes):
        return value
    held = value if _is_contiguous(value) else value.clone(memory_format=torch.contiguous_format)
    return held.view(*sizes)


def _is_contiguous(value: torch.Tensor) -> bool:
    """Compare expressions, so that no size is specialised."""
    wanted: Size = 1
    shape, strides = sizes_of(value.shape), sizes_of(value.stride())
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != wanted:
            return False
        wanted = plain(wanted * size)
    return True
