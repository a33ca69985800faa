"""The rewrite of FuseCatLinear for users of `torch.compile` on the CPU.

::

    torch._inductor.config.pre_grad_custom_pass = cat_linear_pre_grad_pass

The graph is then Dynamo's, before autograd: weights are inputs that training may change, so their
columns are taken by views in the graph, and gradients come out as they should.
"""

from __future__ import annotations

import operator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

from transforms.passes import cat_linear_cost
from transforms.passes.axis_provenance import sizes_of
from transforms.passes.cat_linear_cost import Limits, Shape, denial, least

if TYPE_CHECKING:
    from torch.fx import Graph, Node

__all__ = ["CatLinearPreGradPass", "cat_linear_pre_grad_pass"]

_CATS = frozenset({torch.cat, torch.concat, torch.concatenate})
_LINEARS = frozenset({torch.nn.functional.linear, torch._C._nn.linear})
_WRITERS = frozenset({operator.setitem, operator.delitem})


class _Match(NamedTuple):
    linear: Node
    cat: Node
    parts: list[Node]
    weight: Node
    bias: Node | None


# With torch's own kernels and two threads a concatenation of 29 MiB still gained nothing (0.98x).
_LIMITS = Limits(min_bytes=32 * 2**20)


class CatLinearPreGradPass(CustomGraphPass):
    """Replaces Linear(Cat(x, y), w, b) with Linear(x, w_x, b) + Linear(y, w_y) in Dynamo's graph.

    Left alone is whatever FuseCatLinear refuses; anything not on the CPU; and a concatenation
    behind which something is written before the linear.

    Args:
        limits: what the gate asks for; None rewrites every correct match.
    """

    def __init__(self, limits: Limits | None = _LIMITS) -> None:
        self._limits = limits

    def __call__(self, graph: Graph) -> None:
        """Rewrite `graph` in place."""
        for node in list(graph.nodes):
            match = _match(node)
            if match and _is_right(match) and not self._denied(match):
                _part(graph, match)

    def uuid(self) -> Any:
        """What Inductor's caches key this pass by: its code and its limits."""
        files = (__file__, str(Path(cat_linear_cost.__file__)))
        return get_hash_for_files(files, extra=repr(self._limits))

    def _denied(self, match: _Match) -> bool:
        if self._limits is None:
            return False
        if any(_is_elementwise(part) for part in match.parts):
            return True
        value = _value(match.cat)
        shape = Shape(
            rows=least(value.shape[:-1]),
            widths=tuple(int(_value(part).shape[-1]) for part in match.parts),
            features=int(_value(match.weight).shape[0]),
            itemsize=value.element_size(),
        )
        return denial(shape, self._limits) is not None


cat_linear_pre_grad_pass = CatLinearPreGradPass()


def _value(node: Any) -> torch.Tensor:
    """The fake tensor that Dynamo says `node` yields."""
    return node.meta["example_value"]  # type: ignore[no-any-return]


def _is_tensor(node: Any) -> bool:
    return isinstance(node, torch.fx.Node) and isinstance(
        node.meta.get("example_value"), torch.Tensor
    )


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


def _is_right(match: _Match) -> bool:
    """Whether the parted linears yield the same."""
    value, weight = _value(match.cat), _value(match.weight)
    kwargs = match.cat.kwargs
    axis = (
        match.cat.args[1] if len(match.cat.args) > 1 else kwargs.get("dim", kwargs.get("axis", 0))
    )
    if axis not in {-1, value.dim() - 1} or len(match.cat.users) > 1 or weight.dim() != 2:  # noqa: PLR2004
        return False
    tensors = [_value(part) for part in match.parts]
    shapes = [sizes_of(t.shape) for t in tensors]
    if any(s[:-1] != sizes_of(value.shape)[:-1] or not isinstance(s[-1], int) for s in shapes):
        return False
    if sizes_of(weight.shape[1:]) != (sum(int(s[-1]) for s in shapes),):
        return False
    everything = [value, weight, _value(match.linear), *tensors]
    if any(t.dtype != value.dtype or t.device.type != "cpu" for t in everything):
        return False
    between, node = [], match.cat.next
    while node is not match.linear:
        between.append(node)
        node = node.next
    return not any(_may_write(n) for n in between)


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
    values = [_value(a) if isinstance(a, torch.fx.Node) else a for a in args]
    mode = next(v for v in values if isinstance(v, torch.Tensor)).fake_mode  # type: ignore[attr-defined]
    with mode, torch.no_grad():
        node.meta["example_value"] = target(*values)
    return node
