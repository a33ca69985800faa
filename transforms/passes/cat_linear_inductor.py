"""The rewrite of FuseCatLinear for users of Inductor.

::

    torch._inductor.config.pre_grad_custom_pass = CatLinearPreGradPass(gate="open")

Before autograd the graph is Dynamo's, whose values stand in `meta["example_value"]`, or an exported
program's, with `meta["val"]`. Weights are inputs that training may change, so their columns are
taken by views in the graph, and gradients come out as they should.
"""

from __future__ import annotations

import operator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

from transforms.graph.graph_pass import Journal
from transforms.passes import fuse_cat_linear
from transforms.passes.axes import sizes_of
from transforms.passes.fuse_cat_linear import Shape, checked_gate, denial, least

if TYPE_CHECKING:
    from torch.fx import Graph, Node

aten = torch.ops.aten

_CATS = frozenset({torch.cat, torch.concat, torch.concatenate, aten.cat.default})
_LINEARS = frozenset({torch.nn.functional.linear, torch._C._nn.linear, aten.linear.default})
_WRITERS = frozenset({operator.setitem, operator.delitem})
_VALUES = ("example_value", "val")  # where a graph keeps its fake tensors


class _Match(NamedTuple):
    linear: Node
    cat: Node
    parts: list[Node]
    weight: Node
    bias: Node | None


# With torch's own kernels and two threads a concatenation of 29 MiB still gained nothing (0.98x).
_LEAST_BYTES = 32 * 2**20


class CatLinearPreGradPass(CustomGraphPass):
    """Replaces Linear(Cat(x, y), w, b) with Linear(x, w_x, b) + Linear(y, w_y) in place.

    Left alone is whatever FuseCatLinear refuses, and a concatenation behind which something is
    written before the linear. `journal` notes over all graphs what was rewritten, and what was
    refused and why.

    Args:
        gate: "measured", on the CPU alone; or "open" to rewrite every correct match anywhere.
    """

    def __init__(self, *, gate: str = "measured") -> None:
        self._gate = checked_gate("fuse_cat_linear before autograd", gate)
        self.journal = Journal()

    def __call__(self, graph: Graph) -> None:
        """Rewrite `graph` in place."""
        for node in list(graph.nodes):
            match = _match(node)
            if match is None:
                continue
            reason = _fault(match) or self._denial(match)
            if reason:
                self.journal.refused(node, reason)
                continue
            _part(graph, match)
            self.journal.changed(
                f"applied {node.name} to the {len(match.parts)} parts of {match.cat.name}"
            )

    def uuid(self) -> Any:
        """What Inductor's caches key this pass by: its code and its gate."""
        files = (__file__, str(Path(fuse_cat_linear.__file__)))
        return get_hash_for_files(files, extra=self._gate)

    def _denial(self, match: _Match) -> str | None:
        """Why it would not pay."""
        if self._gate == "open":
            return None
        value = _value(match.cat)
        if value.device.type != "cpu":
            return f"it runs on {value.device.type}, where nothing was measured"
        computed = next((part for part in match.parts if _is_elementwise(part)), None)
        if computed is not None:
            return f"{computed} is computed elementwise, straight into the concatenation"
        shape = Shape(
            rows=least(value.shape[:-1]),
            widths=tuple(int(_value(part).shape[-1]) for part in match.parts),
            features=int(_value(match.weight).shape[0]),
            itemsize=value.element_size(),
        )
        return denial(shape, _LEAST_BYTES)


cat_linear_pre_grad_pass = CatLinearPreGradPass()


def _key(node: Node) -> str:
    """Where the graph keeps the value of `node`."""
    return next((key for key in _VALUES if node.meta.get(key) is not None), _VALUES[0])


def _value(node: Any) -> torch.Tensor:
    """The fake tensor that `node` is said to yield."""
    return node.meta[_key(node)]  # type: ignore[no-any-return]


def _is_tensor(node: Any) -> bool:
    return isinstance(node, torch.fx.Node) and isinstance(node.meta.get(_key(node)), torch.Tensor)


def _match(node: Node) -> _Match | None:
    if node.op != "call_function" or node.target not in _LINEARS:
        return None
    given: dict[str, Any] = dict(zip(("input", "weight", "bias"), node.args, strict=False))
    given |= node.kwargs
    cat, weight, bias = given["input"], given["weight"], given.get("bias")
    if not _is_tensor(cat) or cat.op != "call_function" or cat.target not in _CATS:
        return None
    parts = cat.args[0] if cat.args else cat.kwargs.get("tensors")
    if not isinstance(parts, (list, tuple)) or len(parts) < 2:  # noqa: PLR2004
        return None
    if not all(_is_tensor(n) for n in (*parts, weight, node)) or "out" in cat.kwargs:
        return None
    return _Match(node, cat, list(parts), weight, bias)


def _fault(match: _Match) -> str | None:
    """Why the parted linears would not yield the same, or might not."""
    if len(match.cat.users) > 1:
        return f"{match.cat} has other users, which need it joined"
    node = match.cat.next
    while node is not match.linear:
        if _may_write(node):
            return f"{node} between them may write a part"
        node = node.next
    return _misfit(match)


def _misfit(match: _Match) -> str | None:
    """Where axes, sizes or dtypes do not allow it."""
    value, weight = _value(match.cat), _value(match.weight)
    named = dict(zip(("tensors", "dim"), match.cat.args, strict=False)) | match.cat.kwargs
    if named.get("dim", named.get("axis", 0)) not in {-1, value.dim() - 1}:
        return f"{match.cat} does not join the last axis"
    tensors = [_value(part) for part in match.parts]
    shapes = [sizes_of(t.shape) for t in tensors]
    if any(s[:-1] != sizes_of(value.shape)[:-1] or not isinstance(s[-1], int) for s in shapes):
        return f"a part has another leading shape than {match.cat}, or a dynamic width"
    if weight.dim() != 2 or sizes_of(weight.shape[1:]) != (sum(int(s[-1]) for s in shapes),):  # noqa: PLR2004
        return f"the map does not contract the axis that {match.cat} joins"
    everything = [value, weight, _value(match.linear), *tensors]
    if len({(t.dtype, t.device) for t in everything}) > 1:
        return f"the parts of {match.cat} and the weight are not all of one dtype and device"
    return None


def _may_write(node: Node) -> bool:
    if node.op == "call_method":
        return str(node.target).endswith("_")
    if node.op != "call_function":
        return node.op == "call_module"
    name = getattr(node.target, "__name__", "_")
    if "out" in node.kwargs or name.endswith("_") or node.target in _WRITERS:
        return True
    module = getattr(node.target, "__module__", None) or "torch"  # torch's builtins have none
    if module == "_operator":
        return name.startswith("i") and hasattr(operator, f"__{name}__") and name != "index"
    return not module.startswith("torch") or isinstance(node.target, torch._ops.HigherOrderOperator)


def _is_elementwise(node: Node) -> bool:
    """Whether Inductor writes this straight into the concatenation, so that none is copied.

    Told by the operator's name: Dynamo's graph holds Python functions, tensor methods, operators.
    """
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    packets = [getattr(torch.ops.aten, str(name), None)]
    overloads = [getattr(p, o) for p in packets if p is not None for o in p.overloads()]
    return any(torch.Tag.pointwise in overload.tags for overload in overloads)


def _part(graph: Graph, match: _Match) -> None:
    total: Node | None = None
    start = 0
    with graph.inserting_before(match.linear):
        for part in match.parts:
            width = int(_value(part).shape[-1])
            columns = _call(graph, torch.narrow, match.weight, 1, start, width)
            bias = match.bias if start == 0 else None
            term = _call(graph, torch.nn.functional.linear, part, columns, bias)
            total = term if total is None else _call(graph, torch.add, total, term)
            start += width
    if total is not None:
        match.linear.replace_all_uses_with(total)
        graph.erase_node(match.linear)
        graph.erase_node(match.cat)


def _call(graph: Graph, target: Any, *args: Any) -> Node:
    """A call with its fake value, as Dynamo's own nodes have."""
    node = graph.call_function(target, args)
    key = _key(next(a for a in args if isinstance(a, torch.fx.Node)))
    values = [_value(a) if isinstance(a, torch.fx.Node) else a for a in args]
    mode = next(v for v in values if isinstance(v, torch.Tensor)).fake_mode  # type: ignore[attr-defined]
    with mode, torch.no_grad():
        node.meta[key] = target(*values)
    return node
