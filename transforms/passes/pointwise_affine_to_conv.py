"""Computes pointwise affine maps in the layout of their input, with no transposition around."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map

from transforms.base import GraphPass, Journal
from transforms.editor import fake_value
from transforms.passes.axis_provenance import (
    Digit,
    flat,
    in_frame_order,
    is_row_major,
    plain,
    sizes_of,
)
from transforms.passes.layout_operators import is_dtype_assertion, stride_reader
from transforms.passes.pointwise_plan import BATCHED_MATRIX, Chain, Placed, Plan, make_plan, relaid
from transforms.passes.pointwise_steps import Affine, ChannelNorm, Elementwise, weight_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch.fx import Node

    from transforms.editor import ProgramEditor
    from transforms.passes.axis_provenance import Size

__all__ = ["PointwiseAffineToConv"]

aten = torch.ops.aten

_NAMED = 4  # the most maps that a message names one by one

_WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}  # in which norms are formed


class PointwiseAffineToConv(GraphPass):
    """Replaces Permute(Linear(Permute(x))) with a 1x1 Conv(x), or with Linear(x).

    Linear, mm, matmul and addmm by a constant matrix, elementwise operators and layer norms over
    the channels are followed through layout operators (permutations, views, copies). Where every
    axis of such a value is known to come from the axes of one earlier tensor, its frame, the same
    is computed in the frame: along axis 1 of a tensor of rank 4 or 5 as a convolution with a
    kernel of one position, along the last axis as a linear; a layer norm along another axis than
    the last by its formula, (x - mean) / sqrt(var + eps) * weight + bias with the biased variance
    (Ba et al., "Layer Normalization", 2016), in float32 for half precision.

    Chains are rewritten as a whole, and only where that takes away more transpositions than it
    needs at the values that others use in another order than the frame's. Weights stay as they
    are; the rewritten operators get constants of their own.

    Refuses, with a reason, affine maps behind a transposition whose weight, bias or addend is not
    a constant; that contract anything but one whole axis of the frame, one of those above; whose
    result is not needed in the frame's order. Values that are written in place, or whose storage
    is read by strides, are never moved.

    Args:
        left_products: also map the axis before the last of a matrix or a batch of matrices, by a
            product with the weight on the left. Off, since a product takes a transposed operand at
            no cost where strides are free: 0.96x on the CPU target (a mixer of 196 x 256 tokens).
    """

    name = "pointwise_affine_to_conv"
    summary = "Replaces Permute(Linear(Permute(x))) with a 1x1 Conv(x), or with Linear(x)"

    def __init__(self, *, left_products: bool = False) -> None:
        self._left_products = left_products

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Rewrite every chain that pays."""
        plan = make_plan(editor, left_products=self._left_products)
        held = _Constants(editor)
        for chain in plan.chains:
            maps = [n for n in chain.steps if isinstance(plan.steps[n], Affine)]
            reader = _Builder(editor, plan, chain, held).build()
            if reader is not None:
                plan.refusals |= dict.fromkeys(maps, f"{reader} may rely on the strides it has now")
                held = _Constants(editor)  # the chain took its constants along
                continue
            journal.changed(
                f"computed {_listed(maps)} in the layout of their input: "
                f"{chain.removed - chain.added} transpositions fewer"
            )
        editor.graph.eliminate_dead_code()
        for node, reason in plan.refusals.items():
            journal.refused(node, reason)


def _listed(nodes: list[Node]) -> str:
    names = [node.name for node in nodes]
    if len(names) <= _NAMED:
        return ", ".join(names)
    return f"{names[0]} to {names[-1]}, {len(names)} maps,"


class _Constants:
    """New constants, each made once however often its weight is used."""

    def __init__(self, editor: ProgramEditor) -> None:
        self._editor = editor
        self._made: dict[str, list[tuple[torch.Tensor, Node]]] = {}

    def node(self, name: str, value: torch.Tensor) -> Node:
        """The placeholder of a constant with this value."""
        made = self._made.setdefault(name, [])
        for other, node in made:
            if other.dtype == value.dtype and torch.equal(other, value):
                return node
        value = value.clone(memory_format=torch.contiguous_format)
        made.append((value, self._editor.add_constant(name, value)))
        return made[-1][1]


class _Builder:
    """Writes the twins of one chain into the graph and hands their values to the chain's users."""

    def __init__(
        self, editor: ProgramEditor, plan: Plan, chain: Chain, constants: _Constants
    ) -> None:
        self._editor = editor
        self._constant = constants.node
        self._plan = plan
        self._chain = chain
        self._twins: dict[Node, Node] = {}
        self._returned: set[Node] = set()  # twins whose storage a caller gets

    def build(self) -> Node | None:
        """Replace the chain, unless a node downstream may rely on strides: then return that."""
        exits, steps = set(self._chain.exits), set(self._chain.steps)
        made: list[tuple[Node, Node]] = []
        for node, place in self._plan.placed.items():
            with self._editor.graph.inserting_before(node):
                if node in steps:
                    self._twins[node] = self._twin(node)
                if node in exits:
                    made.append((node, self._arranged(place, node)))
        restrided = [(node, fresh) for node, fresh in made if not _same_strides(fresh, node)]
        reader = stride_reader(node for node, _ in restrided)
        if reader is not None:
            self._editor.graph.eliminate_dead_code()  # the twins, of which nobody knows yet
            self._editor.drop_unused_constants()
            return reader
        self._clear(made)
        self._refresh({fresh for _, fresh in restrided})
        return None

    def _clear(self, made: list[tuple[Node, Node]]) -> None:
        """Hand over to the new values and take away the chain, assertions on its dtypes included.

        Not before the last twin is made: that is done from the old operators' arguments.
        """
        places = {n: p for n, p in self._plan.placed.items() if p.anchor in self._twins}
        for node, place in places.items():
            for user in [u for u in node.users if is_dtype_assertion(u)]:
                user.replace_input_with(node, self._twins[place.anchor])
        for node, fresh in made:
            node.replace_all_uses_with(fresh)
        for node in reversed(places):
            if not node.users:  # dead code removal would keep what may draw random numbers
                self._editor.graph.erase_node(node)
        self._editor.graph.eliminate_dead_code()

    def _refresh(self, stale: set[Node]) -> None:
        """Compute the fake values downstream anew; copy what a view can no longer be taken of."""
        for node in self._editor.graph.nodes:
            if node.op != "call_function" or stale.isdisjoint(node.all_input_nodes):
                continue
            try:
                self._editor.refresh(node)
            except (RuntimeError, ValueError):
                with self._editor.graph.inserting_before(node):
                    copied = self._plain(node.all_input_nodes[0], node)
                node.replace_input_with(node.all_input_nodes[0], copied)
                self._editor.refresh(node)
            stale.add(node)

    def _twin(self, node: Node) -> Node:
        step = self._plan.steps[node]
        if isinstance(step, Elementwise):
            return self._elementwise(node, step)
        base = self._plan.place(step.operand)
        frame = self._frame(base)
        if isinstance(step, ChannelNorm):
            axis = base.axes[-1][0].axis
            if axis == len(base.sizes) - 1:
                return self._last_axis_norm(node, frame)
            return self._channel_norm(node, step, frame, axis)
        axis = base.axes[step.axis][0].axis
        return self._affine(node, step, frame, axis)

    def _frame(self, place: Placed) -> Node:
        return self._twins.get(place.anchor, place.anchor)

    def _affine(self, node: Node, step: Affine, frame: Node, axis: int) -> Node:
        rank = fake_value(frame).dim()
        bias = None
        if step.bias is not None:
            column = step.bias.reshape(-1, 1) if axis == rank - 2 else step.bias
            bias = self._constant(f"{step.name}_pointwise_bias", column)
        if axis == rank - 1:
            held = self._constant(f"{step.name}_pointwise", step.weight)
            return self._call(aten.linear.default, frame, held, bias, like=node)
        if axis == rank - 2:
            return self._matmul(node, step, frame, bias)
        ones = [1] * (rank - 2)
        zeros = [0] * (rank - 2)
        kernel = step.weight.reshape(*step.weight.shape, *ones)
        held = self._constant(f"{step.name}_pointwise", kernel)
        return self._call(
            aten.convolution.default,
            *(frame, held, bias, ones, zeros, ones, False, zeros, 1),
            like=node,
        )

    def _matmul(self, node: Node, step: Affine, frame: Node, bias: Node | None) -> Node:
        """Weight @ frame, for the axis before the last of a matrix or of a batch of them."""
        held = self._constant(f"{step.name}_pointwise", step.weight)
        target = aten.mm.default
        if fake_value(frame).dim() == BATCHED_MATRIX:
            batch = fake_value(frame).shape[0]
            if isinstance(batch, torch.SymInt):
                batch = self._call(aten.sym_size.int, frame, 0, like=node)
            held = self._call(aten.expand.default, held, [batch, *step.weight.shape], like=node)
            target = aten.bmm.default
        product = self._call(target, held, frame, like=node)
        if bias is None:
            return product
        return self._call(aten.add.Tensor, product, bias, like=node)

    def _elementwise(self, node: Node, step: Elementwise) -> Node:
        place = self._plan.place(node)
        swapped = {operand: self._frame(self._plan.place(operand)) for operand in step.operands}
        for operand, value in step.constants.items():
            laid = relaid(value, place) if value.dim() else None
            if laid is not None and laid.shape != value.shape:
                name = weight_name(self._editor, operand)
                swapped[operand] = self._constant(f"{name}_relaid", laid)
        args, kwargs = tree_map(
            lambda a: swapped.get(a, a) if isinstance(a, torch.fx.Node) else a,
            (node.args, node.kwargs),
        )
        return self._call(node.target, *args, like=node, **kwargs)

    def _last_axis_norm(self, node: Node, frame: Node) -> Node:
        """The same operator, on the frame; a native norm stands behind the getitem `node`."""
        if node.target is aten.layer_norm.default:
            return self._call(node.target, frame, *node.args[1:], like=node, **node.kwargs)
        norm: Any = node.args[0]
        fresh = self._call(norm.target, frame, *norm.args[1:], like=norm, **norm.kwargs)
        return self._call(operator.getitem, fresh, 0, like=node)

    def _channel_norm(self, node: Node, step: ChannelNorm, frame: Node, axis: int) -> Node:
        value = fake_value(frame)
        wide = _WIDE.get(value.dtype, value.dtype)
        x = frame if wide == value.dtype else self._cast(frame, wide, node)
        both = self._call(
            aten.var_mean.correction, x, [axis], like=node, correction=0, keepdim=True
        )
        var = self._call(operator.getitem, both, 0, like=node)
        mean = self._call(operator.getitem, both, 1, like=node)
        y = self._call(aten.sub.Tensor, x, mean, like=node)
        var = self._call(aten.add.Tensor, var, step.eps, like=node)
        y = self._call(
            aten.mul.Tensor, y, self._call(aten.rsqrt.default, var, like=node), like=node
        )
        shape = [-1] + [1] * (value.dim() - 1 - axis)
        for constant, apply in ((step.weight, aten.mul.Tensor), (step.bias, aten.add.Tensor)):
            if constant is not None:
                held = self._constant(f"{step.name}_channels", constant.to(wide).reshape(shape))
                y = self._call(apply, y, held, like=node)
        dtype = fake_value(node).dtype
        return y if fake_value(y).dtype == dtype else self._cast(y, dtype, node)

    def _cast(self, node: Node, dtype: torch.dtype, like: Node) -> Node:
        return self._call(aten._to_copy.default, node, like=like, dtype=dtype)

    def _arranged(self, place: Placed, node: Node) -> Node:
        """The value of `node`, made of the twin that is its frame."""
        value = self._frame(place)
        if not is_row_major(place.axes):
            order = in_frame_order(place.axes)
            value = self._viewed(value, [[d] for d in order], place, node)
            moved = [order.index(digit) for digit in flat(place.axes)]
            value = self._call(aten.permute.default, value, moved, like=node)
        value = self._viewed(value, place.axes, place, node)
        plain = _is_plain(value) or _same_strides(value, node)
        if not plain or self._shares_a_result(place.anchor, node):
            value = self._plain(value, node)
        return value

    def _viewed(
        self, value: Node, groups: Sequence[Sequence[Digit]], place: Placed, like: Node
    ) -> Node:
        wanted = [_product(d.size for d in group) for group in groups]
        if tuple(wanted) == sizes_of(fake_value(value).shape):
            return value
        if not _is_plain(value):
            value = self._plain(value, like)
        frame = self._frame(place)
        sizes = [self._size([*group], frame, place, like) for group in groups]
        return self._call(aten.view.default, value, sizes, like=like)

    def _size(self, group: list[Digit], frame: Node, place: Placed, like: Node) -> Node | int:
        """The size of an axis as an argument: a number, or nodes that compute it at run time."""
        factor: int = 1
        product: Node | None = None
        for digit in group:
            if isinstance(digit.size, int):
                factor *= digit.size
                continue
            size = self._call(aten.sym_size.int, frame, digit.axis, like=like)
            others = plain(place.sizes[digit.axis] / digit.size)  # a number: see `regrouped`
            if others != 1:
                size = self._call(operator.floordiv, size, int(others), like=like)
            product = (
                size if product is None else self._call(operator.mul, product, size, like=like)
            )
        if product is None or factor == 1:
            return factor if product is None else product
        return self._call(operator.mul, product, factor, like=like)

    def _plain(self, value: Node, like: Node) -> Node:
        return self._call(
            aten.clone.default, value, like=like, memory_format=torch.contiguous_format
        )

    def _shares_a_result(self, anchor: Node, node: Node) -> bool:
        """Whether a caller already gets the storage of this twin under another name."""
        if not any(user.op == "output" for user in node.users):
            return False
        shared = anchor in self._returned
        self._returned.add(anchor)
        return shared

    def _call(self, target: Any, *args: Any, like: Node, **kwargs: Any) -> Node:
        return self._editor.call(target, *args, like=like, **kwargs)


def _product(sizes: Iterable[Size]) -> Size:
    product: Size = 1
    for size in sizes:
        product = plain(product * size)
    return product


def _is_plain(node: Node) -> bool:
    """Whether the fake value is contiguous; decided on expressions, so nothing is specialised."""
    value = fake_value(node)
    wanted: Size = 1
    shape, strides = sizes_of(value.shape), sizes_of(value.stride())
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != wanted:
            return False
        wanted = plain(wanted * size)
    return True


def _same_strides(node: Node, other: Node) -> bool:
    return sizes_of(fake_value(node).stride()) == sizes_of(fake_value(other).stride())
