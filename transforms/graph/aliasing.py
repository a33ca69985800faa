"""Which nodes of a graph may share memory.

A may-analysis: nodes in different sets never share memory, and nodes in one set may. It ignores the
order of writes, because a `ProgramEditor` holds no call that writes. Sharing is derived from the
alias annotations in the operators' schemas. Composite operators need not declare that they return
views (`einsum("ij->ji", x)` does), so they run on fake tensors and their storages are compared,
except for those that always compute (`FRESH`). Python functions and higher-order operators are
assumed to share everything.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch._decomp import get_decompositions
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from transforms.graph.guards import no_new_guards, surely_equal
from transforms.graph.retrace import decompose_program
from transforms.graph.schemas import (
    as_torch_does,
    bound_arguments,
    call_with,
    is_composite,
    nodes_in,
    qualified_name,
    schema_of,
    tensors_of,
    writes,
)

aten = torch.ops.aten

# These return views, though their schemas declare none.
_UNDECLARED = frozenset({
    "aten::_unsafe_view", "aten::unsafe_split", "aten::unsafe_split_with_sizes",
    "aten::native_dropout", "aten::_conj_physical", "aten::set_",
})  # fmt: skip

# Their size and content are given, so decomposing them drops the dependency on a tensor's value.
_BY_SIZE = get_decompositions([aten.new_zeros, aten.new_ones, aten.new_full])


def _assert(held: torch.Tensor) -> None:
    """Assert with a message, because torch drops an assertion without one."""
    aten._assert_async.msg(held, "an assertion of a value does not hold")


# Composite operators whose result is new memory, whatever their arguments.
FRESH = frozenset({
    "aten::linear", "aten::matmul", "aten::conv1d", "aten::conv2d", "aten::conv3d",
    "aten::layer_norm", "aten::group_norm", "aten::batch_norm",
    "aten::scaled_dot_product_attention",
})  # fmt: skip


class Aliasing:
    """Sets of nodes that may share memory; a node inserted later must be `adopt`ed before use."""

    def __init__(self, graph: Graph) -> None:
        self._sharing: dict[Node, set[Node]] = {}  # the set that each node is in
        self._returned: list[Node] = []
        self._inputs: list[Node] = []
        for node in graph.nodes:
            self._sharing[node] = {node}
            if node.op in {"placeholder", "get_attr"}:
                self._inputs.append(node)
            elif node.op == "output":
                self._returned = list(dict.fromkeys(nodes_in(node.args[0])))
            for source in _shared_with(node):
                self.merge(node, source)

    def merge(self, one: Node, other: Node) -> None:
        """Record that two nodes may share memory."""
        gone, kept = sorted((self._sharing[one], self._sharing[other]), key=len)
        if gone is not kept:
            kept |= gone
            self._sharing.update(dict.fromkeys(gone, kept))

    def adopt(self, node: Node, *sharing: Node) -> None:
        """Add a new node, which shares memory with the given nodes."""
        self._sharing[node] = {node}
        for other in sharing:
            self.merge(other, node)

    def share(self, one: Node, other: Node) -> bool:
        """Return whether two nodes may share memory."""
        return self._sharing[one] is self._sharing[other]

    def returned(self, node: Node) -> list[Node]:
        """Return the program's outputs that may share the node's memory."""
        return [n for n in self._returned if self.share(n, node)]

    def is_last_read(self, call: Node) -> bool:
        """Return whether a write's memory is no input's, and no other older alias is read later."""
        before = (n for n in self._sharing[call] - {call.args[0]} if n < call)
        late = any(user > call for node in before for user in node.users)
        return not late and not self.is_input(call)

    def is_input(self, node: Node) -> bool:
        """Return whether the node may share memory with an input, a weight or a buffer."""
        return any(self.share(n, node) for n in self._inputs)


def _shared_with(node: Node, *, guess: bool = True) -> list[Node]:
    """Return the arguments whose memory a result may share; with `guess`, all if it cannot run."""
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
    return _probed(node, sources, guess) if is_composite(node.target) else []


def _probed(node: Node, sources: list[Node], guess: bool) -> list[Node]:
    """Return the arguments whose storage the call returns when it runs on their fake values."""
    tensors = [t for n in sources for t in tensors_of(n)]
    try:
        with no_new_guards(cast("FakeTensor", tensors[0]).fake_mode):
            result = call_with(node, lambda n: n.meta["val"])
    except Exception:  # noqa: BLE001 - a call that cannot run may share
        return sources if guess else []
    results = result if isinstance(result, (list, tuple)) else [result]
    returned = {t.untyped_storage()._cdata for t in results if isinstance(t, torch.Tensor)}
    return [n for n in sources if returned & {t.untyped_storage()._cdata for t in tensors_of(n)}]


def nodes_of(program: ExportedProgram) -> list[Node]:
    """Return the nodes of a program's graph and of the graphs that it calls."""
    graphs = [each.graph for each in program.graph_module.modules() if hasattr(each, "graph")]
    return [node for graph in graphs for node in graph.nodes]


def functional(program: ExportedProgram) -> ExportedProgram:
    """Return the program in inference form: without writes, with composite operators kept whole.

    An operator that cannot run for all sizes, such as an LSTM, stays: decomposing would fix them.
    """
    table: dict[Any, Any] = _BY_SIZE | {aten._assert_async.default: _assert}
    results = _results_of_writes(program)
    if results is None:
        # torch assumes that every composite operator returns new memory.
        composites = [node for node in nodes_of(program) if is_composite(node.target)]
        seen: list[Any] = [n.target for n in composites if _shared_with(n, guess=False)]
        table |= {target: as_torch_does(target) for target in seen}
    return decompose_program(program, table, results)


def _results_of_writes(program: ExportedProgram) -> dict[Node, OpOverload] | None:
    """Return a functional operator for each writing call; None if that does not suffice.

    It suffices if every later reader of the written memory uses the written tensor or the call's
    result, and no graph that the program calls writes.
    """
    results: dict[Node, OpOverload] = {}
    written = [node for node in nodes_of(program) if writes(node)]
    sharing = Aliasing(program.graph) if written else None
    for node in written:
        way = _returning(node) if node.graph is program.graph else None
        if way is None or sharing is None or not sharing.is_last_read(node):
            return None
        results[node] = way
    return results


def _returning(node: Node) -> OpOverload | None:
    """Return the functional variant of an operator such as `relu_`; None if there is none."""
    target: Any = node.target
    space, _, name = qualified_name(target).partition("::")
    packet = getattr(getattr(torch.ops, space), name.removesuffix("_"), None)
    way = getattr(packet, target._overloadname, None)
    if way is None or way is target or not node.args or not isinstance(node.args[0], Node):
        return None
    try:
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        value: Any = args[0]
        with no_new_guards(value.fake_mode):
            result = way(*args, **kwargs)
        # `as_strided` sees strides, and an overlapping or partial tensor does not own its storage.
        sizes = *value.shape, *value.stride(), value.numel() * value.element_size()
        laid_out = [(*t.shape, *t.stride(), t.untyped_storage().nbytes()) for t in (value, result)]
        same = result.dtype == value.dtype and all(surely_equal(each, sizes) for each in laid_out)
    except Exception:  # noqa: BLE001 - torch's own decomposition may handle it
        return None
    return way if same else None
