"""Which nodes of a graph may share memory, and when that memory is written.

A may-analysis: nodes that it tells apart never share memory; nodes that it puts together may.
Sharing comes from the alias annotations of the operators' schemas. Composite operators need not
declare what they return (`einsum("ij->ji", x)` returns a view), so they are run on fake tensors and
their storages compared, but for those that always compute (`FRESH`): a run takes milliseconds, and
every pass asks. Python functions and higher-order operators are assumed to share all.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, cast

import torch

from transforms.graph.guards import no_new_guards
from transforms.graph.schemas import (
    bound_arguments,
    call_with,
    nodes_in,
    qualified_name,
    schema_of,
    tensors_of,
    underlying,
    written_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch._subclasses.fake_tensor import FakeTensor
    from torch.fx import Graph, Node

# Views in truth, though their schemas declare none.
_UNDECLARED = frozenset(
    {
        "aten::_unsafe_view",
        "aten::unsafe_split",
        "aten::unsafe_split_with_sizes",
        "aten::native_dropout",
        "aten::_conj_physical",
    }
)

# Composite, and what they return is new memory whatever their arguments.
FRESH = frozenset(
    {
        "aten::linear",
        "aten::matmul",
        "aten::conv1d",
        "aten::conv2d",
        "aten::conv3d",
        "aten::layer_norm",
        "aten::scaled_dot_product_attention",
    }
)


def writes_of(node: Node) -> list[Node]:
    """The nodes whose memory a call writes: in place, as `out=`, or within a subgraph."""
    if node.op != "call_function":
        return []
    if schema_of(node.target) is not None:
        return list(written_arguments(node))
    if isinstance(node.target, torch._ops.HigherOrderOperator) and not _pure_subgraphs(node):
        return [n for n in node.all_input_nodes if tensors_of(n)]
    return []


def is_written_between(first: Node, last: Node) -> bool:
    """Whether any call behind `first` writes to memory, up to `last` and with it."""
    node = first
    while node is not last:
        node = node.next
        if writes_of(node):
            return True
    return False


class Aliasing:
    """The sets of nodes that may share memory, with the writes to each.

    Args:
        graph: left unchanged. Nodes made later must be `adopt`ed before they are asked about.
        tied: groups of placeholders known to be one memory, e.g. weights under two names.
    """

    def __init__(self, graph: Graph, tied: Iterable[list[Node]] = ()) -> None:
        self._sharing: dict[Node, set[Node]] = {}  # the set that a node is in
        self._position: dict[Node, int] = {}
        self._writes: list[tuple[Node, int]] = []
        self._returned: list[Node] = []
        self._inputs: list[Node] = []
        for position, node in enumerate(graph.nodes):
            self._sharing[node], self._position[node] = {node}, position
            if node.op in {"placeholder", "get_attr"}:
                self._inputs.append(node)
            elif node.op == "output":
                self._returned = list(dict.fromkeys(nodes_in(node.args[0])))
            for source in _shared_with(node):
                self.merge(node, source)
            self._writes += [(written, position) for written in writes_of(node)]
        for group in tied:
            for node in group[1:]:
                self.merge(group[0], node)

    def merge(self, one: Node, other: Node) -> None:
        """Say that two nodes now share memory."""
        gone, kept = sorted((self._sharing[one], self._sharing[other]), key=len)
        if gone is not kept:
            kept |= gone
            self._sharing.update(dict.fromkeys(gone, kept))

    def adopt(self, node: Node, standing_for: Node, *, shares: bool = True) -> None:
        """Learn of a new node that computes at another's place, in its memory or in its own."""
        self._sharing[node], self._position[node] = {node}, self._position[standing_for]
        if shares:
            self.merge(standing_for, node)

    def share(self, one: Node, other: Node) -> bool:
        """Whether two nodes may share memory."""
        return self._sharing[one] is self._sharing[other]

    def is_written(self, node: Node) -> bool:
        """Whether anything ever writes the node's memory."""
        return any(self.share(node, written) for written, _ in self._writes)

    def is_written_between(self, node: Node, first: Node, last: Node | None = None) -> bool:
        """Whether the node's memory is written from `first` on, up to `last` and with it."""
        start = self._position[first]
        end = max(self._position.values()) if last is None else self._position[last]
        return any(start <= at <= end and self.share(node, n) for n, at in self._writes)

    def returned(self, node: Node) -> list[Node]:
        """The program's outputs that may share the node's memory."""
        return [n for n in self._returned if self.share(n, node)]

    def is_input(self, node: Node) -> bool:
        """Whether the node may share memory with an input, a weight or a buffer."""
        return any(self.share(n, node) for n in self._inputs)


def _shared_with(node: Node) -> list[Node]:
    """The arguments whose memory a call's result may share."""
    if node.op != "call_function" or not tensors_of(node):
        return []
    schema = schema_of(node.target)
    sources = [n for n in node.all_input_nodes if tensors_of(n)]
    name = qualified_name(node.target)
    if schema is None or name in _UNDECLARED:
        return sources
    if name in FRESH:
        return []
    if any(r.alias_info for r in schema.returns):
        bound = bound_arguments(node)
        marked = [bound.get(a.name) for a in schema.arguments if a.alias_info]
        return [n for n in nodes_in(marked) if tensors_of(n)]
    operator = underlying(node.target).name()
    key = "CompositeImplicitAutograd"
    is_composite = torch._C._dispatch_has_kernel_for_dispatch_key(operator, key)
    return _probed(node, sources) if is_composite else []


def _probed(node: Node, sources: list[Node]) -> list[Node]:
    """The arguments whose storage the call returns when it is run on their fake values."""
    tensors = [t for n in sources for t in tensors_of(n)]
    try:
        with no_new_guards(cast("FakeTensor", tensors[0]).fake_mode):
            result = call_with(node, lambda n: n.meta["val"])
    except Exception:  # noqa: BLE001 - what cannot be run may share
        return sources
    results = result if isinstance(result, (list, tuple)) else [result]
    returned = {t.untyped_storage()._cdata for t in results if isinstance(t, torch.Tensor)}
    return [n for n in sources if returned & {t.untyped_storage()._cdata for t in tensors_of(n)}]


def _pure_subgraphs(node: Node) -> bool:
    """Whether a higher-order call's subgraphs are known and write nothing."""
    attributes = [n for n in node.all_input_nodes if n.op == "get_attr"]
    owner = node.graph.owning_module
    modules = [attrgetter(str(n.target))(owner) for n in attributes]
    graphs = [m.graph for m in modules if isinstance(m, torch.fx.GraphModule)]
    return bool(graphs) and not any(writes_of(n) for g in graphs for n in g.nodes)
