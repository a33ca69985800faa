"""Remove layout operators that undo one another or do nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch.fx import Node

from transforms.graph.aliasing import Aliasing
from transforms.graph.editor import ProgramEditor
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.layouts import Unfit, downstream_values, layout, same_layout
from transforms.graph.schemas import (
    bound_arguments,
    enters_graph,
    is_elementwise,
    is_functional,
    qualified_name,
    schema_of,
)
from transforms.passes.axes import COPIES, EXPANSIONS, PERMUTATIONS, REGROUPINGS, axis_order
from transforms.passes.pointwise_affine_to_conv import compute_in_frames

aten = torch.ops.aten

_COPIES = COPIES | {f"aten::{n}" for n in ("to", "_to_copy", "lift_fresh", "lift_fresh_copy")}
# These are the identity if they keep the sizes.
_WINDOWS = EXPANSIONS | {"aten::slice", "aten::slice_copy"}
# Their schemas declare a view, but they copy where strides do not allow one.
_MAY_COPY = frozenset(f"aten::{name}" for name in ("contiguous", "reshape", "flatten", "to"))


class _Step(NamedTuple):
    """An ancestor whose elements a node holds, with its axes perhaps in another order."""

    source: Node
    axes: tuple[int, ...]  # the node's axis i is the source's axis axes[i]
    chain: tuple[Node, ...]  # the calls between, from the node itself to the source's own user

    @property
    def is_identity(self) -> bool:
        return self.axes == tuple(range(len(self.axes)))

    @property
    def views(self) -> bool:
        """Whether the whole chain certainly shares the source's memory."""
        return all(map(_is_certain_view, self.chain))


class RemoveIdentityPermutes(GraphPass):
    """Replaces permute(permute(x, p), q) with permute(x, p[q]), and with x where that is nothing.

    A node that holds the elements of an ancestor in the same order, with the same sizes and
    strides, is that ancestor; consecutive permutations become one. The pass follows permutations,
    composed axis by axis; regroupings that keep row-major order (view, squeeze, ...); copies
    (contiguous, clone, ...); slices and expansions that keep the sizes. Strides of a permuted copy
    may differ if all its users can take the ancestor's. Before that, pointwise calls are computed
    in their frame if it saves permutations: permute(f(permute(x, p)), q) becomes f(x) when p and q
    cancel.

    Axes decide, not sizes: swapping two axes of equal size is no identity. Strides are those that
    the program was exported with; those of returned values may become contiguous.

    Refuses to remove a copy if it enters a branch or a loop, or if it is returned and would share
    memory with an input or another output; and to return an input as an output.
    """

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Rewrite until nothing changes; every rewrite removes a call."""
        maps = {n for n in editor.graph.nodes if not (_is_layout(n) or is_elementwise(n))}
        compute_in_frames(editor, journal, maps, lambda _: True)
        work = _Work(editor, editor.aliasing(), journal)
        while any(_rewrite(work, node) for node in list(editor.graph.nodes)):
            pass


class _Work(NamedTuple):
    editor: ProgramEditor
    aliasing: Aliasing
    journal: Journal


def _rewrite(work: _Work, node: Node) -> bool:
    """Apply the first rewrite that fits the node; return whether there was one."""
    if node.op != "call_function" or not node.users or not _is_layout(node):
        return False
    steps = _permuted_from(node)
    for step in [*reversed(_regrouped_from(node)), *reversed(steps)]:
        # Require equal strides or removed permutations, since a copy may only change strides.
        same = layout(node.meta["val"])[:3] == layout(step.source.meta["val"])[:3]
        gain = same or sum(qualified_name(n.target) in PERMUTATIONS for n in step.chain) > 1
        if step.is_identity and gain and _bypass(work, node, step):
            return True
    return _compose(work, node, steps)


def _is_layout(node: Node) -> bool:
    name = qualified_name(node.target)
    value = node.meta.get("val")
    known = name in REGROUPINGS | _COPIES | _WINDOWS | PERMUTATIONS
    return known and isinstance(value, torch.Tensor) and bool(node.all_input_nodes)


def _source(node: Node) -> Node:
    return node.all_input_nodes[0]


def _is_certain_view(node: Node) -> bool:
    schema = schema_of(node.target)
    if schema is None or qualified_name(node.target) in _MAY_COPY:
        return False
    return any(r.alias_info for r in schema.returns)


def _keeps_elements(node: Node) -> bool:
    """Return whether a copy or window yields its source's elements, with equal sizes and dtype."""
    mine, theirs = layout(node.meta["val"]), layout(_source(node).meta["val"])
    if mine[:2] != theirs[:2] or node.meta["val"].device != _source(node).meta["val"].device:
        return False
    name = qualified_name(node.target)
    return name in _COPIES or (name in _WINDOWS and bound_arguments(node).get("step", 1) == 1)


def _permuted_from(node: Node) -> list[_Step]:
    """Return every ancestor reached through permutations and copies, nearest first."""
    steps: list[_Step] = []
    axes = tuple(range(node.meta["val"].dim()))
    chain: tuple[Node, ...] = (node,)
    while True:
        if qualified_name(node.target) in PERMUTATIONS:
            order = axis_order(node, _source(node).meta["val"].dim())
            axes = tuple(order[axis] for axis in axes)
        elif not _keeps_elements(node):
            return steps
        node = _source(node)
        steps.append(_Step(node, axes, chain))
        if node.op != "call_function" or not _is_layout(node):
            return steps
        chain = (*chain, node)


def _regrouped_from(node: Node) -> list[_Step]:
    """Return ancestors of equal size reached by regroupings and copies, nearest first."""
    steps: list[_Step] = []
    made = layout(node.meta["val"])[:2]
    axes = tuple(range(node.meta["val"].dim()))
    chain: tuple[Node, ...] = (node,)
    while _keeps_order(node):
        node = _source(node)
        if layout(node.meta["val"])[:2] == made:
            steps.append(_Step(node, axes, chain))
        if node.op != "call_function" or not _is_layout(node):
            break
        chain = (*chain, node)
    return steps


def _keeps_order(node: Node) -> bool:
    """Return whether a call yields its source's elements in the same row-major order."""
    name = qualified_name(node.target)
    if name in REGROUPINGS:  # `view` may also reinterpret bytes
        return node.meta["val"].dtype is _source(node).meta["val"].dtype
    return name not in PERMUTATIONS and _keeps_elements(node)


def _bypass(work: _Work, node: Node, step: _Step) -> bool:
    editor, aliasing, journal = work
    source = step.source
    reason = next(_refusals(aliasing, node, step), None)
    try:
        values = downstream_values(editor, {node: source.meta["val"]}, aliasing.returned(node))
    except Unfit as fault:
        reason = str(fault)
    if reason:
        if all(r.node != node.name for r in journal.refusals):
            journal.refused(node, reason)
        return False
    aliasing.merge(node, source)
    editor.replace(node, source)
    editor.set_values(values)
    _prune(step.chain)
    journal.changed(f"{node.name} is {source.name}")
    return True


def _refusals(aliasing: Aliasing, node: Node, step: _Step) -> Iterator[str]:
    source, returned = step.source, aliasing.returned(node)
    if step.views:
        if node in returned and (source.op != "call_function" or source in returned):
            yield f"it is returned, and {source.name} is an input or an output itself"
        return
    if enters_graph(node):
        yield "it enters a branch or a loop"
    if returned and aliasing.is_input(source):
        yield "it is returned and would share memory with an input or a weight"
    if returned and len({*returned, *aliasing.returned(source)}) > 1:
        yield "it is returned and would share memory with another output"


def _prune(nodes: Iterable[Node]) -> None:
    """Erase the calls among `nodes`, listed users first, that nothing reads any more."""
    for node in nodes:
        if not node.users and not node._erased and is_functional(node):
            node.graph.erase_node(node)


def _compose(work: _Work, node: Node, steps: list[_Step]) -> bool:
    """Merge several consecutive views that nothing else reads into one permutation."""
    editor, aliasing, journal = work
    for step in reversed(steps):
        inner = step.chain[1:]
        permutes = [n for n in step.chain if qualified_name(n.target) in PERMUTATIONS]
        if len(permutes) < 2 or not step.views or any(len(n.users) > 1 for n in inner):  # noqa: PLR2004
            continue
        fresh = editor.call(aten.permute.default, step.source, list(step.axes), like=node)
        if not same_layout(fresh.meta["val"], node.meta["val"]):
            editor.graph.erase_node(fresh)
            continue
        aliasing.adopt(fresh, node)
        editor.replace(node, fresh)
        _prune(step.chain)
        journal.changed(f"{node.name} permutes {step.source.name} at once")
        return True
    return False
