"""Applies a linear to the parts of a concatenation instead of concatenating them first.

`FuseCatLinear` does so in an exported program, whose weights are constants. For users of Inductor
there is the same before autograd::

    torch._inductor.config.pre_grad_custom_pass = CatLinearPreGradPass(gate="open")

There the graph is Dynamo's, whose values are in `meta["example_value"]`, or an exported program's,
with `meta["val"]`. Weights are inputs that training may change, so their columns are taken by views
in the graph, and gradients come out as they should.
"""

from __future__ import annotations

import math
import operator
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

from transforms.graph.editor import fake_value
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.schemas import bound_arguments, is_elementwise
from transforms.passes.axes import sizes_of
from transforms.passes.pointwise_chains import Affine, read_step
from zoo.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.fx import Graph, Node

    from transforms.graph.editor import ProgramEditor


aten = torch.ops.aten

_PLAIN = torch.contiguous_format
_VIEWS = (
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten.unsqueeze.default,  # a vector's linear, decomposed
)


class _Match(NamedTuple):
    """affine(view(cat(parts, -1))); the view may be missing."""

    node: Node  # the affine map
    view: Node | None
    cat: Node
    parts: tuple[Node, ...]
    step: Affine


class FuseCatLinear(GraphPass):
    """Replaces Linear(Cat(x, y), w, b) with Linear(x, w_x, b) + Linear(y, w_y).

    The columns of the weight are parted as the last axis of the concatenation is, and stored as
    constants of their own; the bias is added once. Linear, mm, addmm and matmul by a constant, also
    behind a view that keeps the last axis.

    Whether it pays is a matter of the target: `denial` says what was measured on the CPU.
    Sizes are never specialised: a dynamic number of rows counts as its lower bound.

    Refuses, with a reason, another axis than the last, parts of other leading shapes or dtypes,
    a concatenation with other users, parts that are written in place, and what the gate denies.

    Args:
        gate: "measured", or "open" to rewrite every correct match, as suits other targets.
    """

    name = "fuse_cat_linear"
    summary = "Replaces Linear(Cat(x, y)) with Linear(x) + Linear(y)"

    def __init__(self, *, gate: str = "measured") -> None:
        self._gate = checked_gate(f"pass {self.name}", gate)

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Rewrite every concatenation that is correct to part and worth it."""
        for node in list(editor.graph.nodes):
            match = _match(editor, node)
            if match is None:
                continue
            reason = _fault(editor, match) or self._denial(match)
            if reason:
                journal.refused(node, reason)
            else:
                _part(editor, match)
                journal.changed(
                    f"applied {node.name} to the {len(match.parts)} parts of {match.cat.name}"
                )

    def _denial(self, match: _Match) -> str | None:
        """Why it would not pay."""
        if self._gate == "open":
            return None
        computed = next((part for part in match.parts if is_elementwise(part)), None)
        parts = [fake_value(part) for part in match.parts]
        features = match.step.weight.shape[0]
        return _gate_denial(fake_value(match.cat), parts, features, computed)


def _match(editor: ProgramEditor, node: Node) -> _Match | None:
    step = read_step(editor, node) if node.op == "call_function" else None
    if not isinstance(step, Affine) or step.axis != fake_value(step.operands[0]).dim() - 1:
        return None
    [operand] = step.operands
    view = operand if operand.target in _VIEWS else None
    cat: Any = operand if view is None else view.args[0]
    if cat.target is not aten.cat.default or len(cat.args[0]) < 2:  # noqa: PLR2004
        return None
    if view is not None and not _keeps_last_axis(view, step.weight.shape[1]):
        return None
    return _Match(node, view, cat, tuple(cat.args[0]), step)


def _keeps_last_axis(view: Node, width: int) -> bool:
    value = fake_value(view)
    if view.target is aten.unsqueeze.default:
        axis: Any = view.args[1]
        return bool(axis % value.dim() != value.dim() - 1)
    return bool(value.shape[-1] == width)


def _fault(editor: ProgramEditor, match: _Match) -> str | None:
    """Why parting would be wrong."""
    value = fake_value(match.cat)
    if bound_arguments(match.cat)["dim"] % value.dim() != value.dim() - 1:
        return f"{match.cat} does not join the last axis"
    if sizes_of(value.shape)[-1] != match.step.weight.shape[1]:
        return f"the map does not contract the axis that {match.cat} joins"
    for joined in (match.cat, match.view):
        if joined is not None and len(joined.users) > 1:
            return f"{joined} has other users, which need it joined"
    shared = editor.aliasing()
    if any(shared.is_written(part) for part in (*match.parts, match.cat)):
        return "a part is written in place"
    return _unequal(match)


def _unequal(match: _Match) -> str | None:
    """Where a part differs from the others in more than its width."""
    parts = [fake_value(part) for part in match.parts]
    if any(part.dtype != match.step.weight.dtype for part in (fake_value(match.cat), *parts)):
        return f"the parts of {match.cat} and the weight are not all of one dtype"
    return _uneven(match.cat, fake_value(match.cat), parts)


def _uneven(cat: Node, value: torch.Tensor, parts: Sequence[torch.Tensor]) -> str | None:
    """Where a part has other axes than what is made of them, but for a fixed width."""
    lead = sizes_of(value.shape)[:-1]
    sizes = [sizes_of(part.shape) for part in parts]
    if any(each[:-1] != lead or not isinstance(each[-1], int) for each in sizes):
        return f"a part has another leading shape than {cat}, or a dynamic width"
    return None


def _part(editor: ProgramEditor, match: _Match) -> None:
    node, step = match.node, match.step
    with editor.graph.inserting_before(node):
        total = _sum_of_parts(editor, match)
        if match.view is not None:
            total = _view_like(editor, match.view, total, step.weight.shape[0])
    editor.replace(node, total)


def _view_like(editor: ProgramEditor, view: Node, total: Node, features: int) -> Node:
    """`total` brought to the shape of `view`, but for its last axis of `features`."""
    geometry: Any = view.args[1]
    if view.target is aten.unsqueeze.default:
        return editor.call(aten.unsqueeze.default, total, geometry, like=view)
    return editor.call(aten.view.default, total, [*geometry[:-1], features], like=view)


def _sum_of_parts(editor: ProgramEditor, match: _Match) -> Node:
    """One linear a part, the bias in the first, added up from the left."""
    node, step = match.node, match.step
    widths = [int(fake_value(part).shape[-1]) for part in match.parts]
    bias = step.bias
    terms = []
    for number, (part, columns) in enumerate(
        zip(match.parts, torch.split(step.weight, widths, dim=1), strict=True)
    ):
        weight = editor.add_constant(
            f"{step.name}_part_{number}", columns.clone(memory_format=_PLAIN)
        )
        held = None
        if number == 0 and bias is not None:
            held = editor.add_constant(f"{step.name}_part_bias", bias.clone(memory_format=_PLAIN))
        terms.append(editor.call(aten.linear.default, part, weight, held, like=node))
    return reduce(lambda a, b: editor.call(aten.add.Tensor, a, b, like=node), terms)


GATES = ("measured", "open")

_MOST_PARTS = 4
_LEAST_WIDTH, _MOST_WIDTH = 64, 2048  # of a part; of all together
_LEAST_RATIO = 16  # columns in all, for one feature of one addition
_FLOAT32 = 4
_LEAST_BYTES = 16 * 2**20  # a smaller concatenation stays in the caches
# With torch's own kernels and two threads a concatenation of 29 MiB still gained nothing (0.98x).
_LEAST_BYTES_OF_TORCH = 32 * 2**20


class Shape(NamedTuple):
    """What the speed depends on."""

    rows: int  # all leading axes together
    widths: tuple[int, ...]  # of the parts
    features: int  # the linear's outputs
    itemsize: int  # bytes


def checked_gate(place: str, gate: str) -> str:
    """`gate` if there is such a one.

    Raises:
        UsageError: there is not.
    """
    if gate in GATES:
        return gate
    raise UsageError(place, f"has no gate {gate!r}", f"It takes: {', '.join(GATES)}")


def denial(shape: Shape, least_bytes: int = _LEAST_BYTES) -> str | None:
    """Why the rewrite would not pay; None if it does.

    Args:
        shape: with the fewest rows that may come.
        least_bytes: a smaller concatenation stays in the caches and costs next to nothing.
    """
    additions, width = len(shape.widths) - 1, sum(shape.widths)
    added = shape.features * additions
    checks = (
        (additions >= _MOST_PARTS, f"it has {additions + 1} parts, more than {_MOST_PARTS}"),
        (min(shape.widths) < _LEAST_WIDTH, f"a part is narrower than {_LEAST_WIDTH}"),
        (width > _MOST_WIDTH, f"it is {width} wide, wider than {_MOST_WIDTH}"),
        (shape.itemsize != _FLOAT32, "only float32 was measured"),
        (
            shape.rows * width * shape.itemsize < least_bytes,
            f"with {shape.rows} rows (the least that may come) it stays in the caches",
        ),
        (
            width < _LEAST_RATIO * added,
            f"a copy of {width} columns saved promises nothing beside {added} to add",
        ),
    )
    return next((reason for fails, reason in checks if fails), None)


def _gate_denial(
    value: torch.Tensor,
    parts: Sequence[torch.Tensor],
    features: int,
    computed: Node | None,
    least_bytes: int = _LEAST_BYTES,
) -> str | None:
    """Why parting the concatenation `value` would not pay; `computed` is an elementwise part."""
    if computed is not None:
        return f"{computed} is computed elementwise, straight into the concatenation"
    widths = tuple(int(part.shape[-1]) for part in parts)
    rows = math.prod(_least(size) for size in value.shape[:-1])
    return denial(Shape(rows, widths, features, value.element_size()), least_bytes)


def _least(size: int | torch.SymInt) -> int:
    """The least that a size may be at run time."""
    if not isinstance(size, torch.SymInt):
        return size
    return max(0, int(size.node.shape_env.bound_sympy(size.node.expr).lower))


_CATS = frozenset({torch.cat, torch.concat, torch.concatenate, aten.cat.default})
_LINEARS = frozenset({torch.nn.functional.linear, torch._C._nn.linear, aten.linear.default})
_WRITERS = frozenset({operator.setitem, operator.delitem})
_VALUES = ("example_value", "val")  # where a graph keeps its fake tensors


class _TorchMatch(NamedTuple):
    linear: Node
    cat: Node
    parts: list[Node]
    weight: Node
    bias: Node | None


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
            match = _torch_match(node)
            if match is None:
                continue
            reason = _torch_fault(match) or self._denial(match)
            if reason:
                self.journal.refused(node, reason)
                continue
            _part_in_place(graph, match)
            self.journal.changed(
                f"applied {node.name} to the {len(match.parts)} parts of {match.cat.name}"
            )

    def uuid(self) -> Any:
        """What Inductor's caches key this pass by: its code and its gate."""
        return get_hash_for_files((__file__,), extra=self._gate)

    def _denial(self, match: _TorchMatch) -> str | None:
        """Why it would not pay."""
        if self._gate == "open":
            return None
        value = _value(match.cat)
        if value.device.type != "cpu":
            return f"it runs on {value.device.type}, where nothing was measured"
        computed = next((part for part in match.parts if _is_elementwise(part)), None)
        parts = [_value(part) for part in match.parts]
        features = int(_value(match.weight).shape[0])
        return _gate_denial(value, parts, features, computed, _LEAST_BYTES_OF_TORCH)


cat_linear_pre_grad_pass = CatLinearPreGradPass()


def _key(node: Node) -> str:
    """Where the graph keeps the value of `node`."""
    return next((key for key in _VALUES if node.meta.get(key) is not None), _VALUES[0])


def _value(node: Any) -> torch.Tensor:
    """The fake tensor that `node` is said to yield."""
    return node.meta[_key(node)]  # type: ignore[no-any-return]


def _is_tensor(node: Any) -> bool:
    return isinstance(node, torch.fx.Node) and isinstance(node.meta.get(_key(node)), torch.Tensor)


def _torch_match(node: Node) -> _TorchMatch | None:
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
    return _TorchMatch(node, cat, list(parts), weight, bias)


def _torch_fault(match: _TorchMatch) -> str | None:
    """Why the parted linears would not yield the same, or might not."""
    if len(match.cat.users) > 1:
        return f"{match.cat} has other users, which need it joined"
    node = match.cat.next
    while node is not match.linear:
        if _may_write(node):
            return f"{node} between them may write a part"
        node = node.next
    return _torch_unequal(match)


def _torch_unequal(match: _TorchMatch) -> str | None:
    """Where axes, sizes or dtypes do not allow it."""
    value, weight = _value(match.cat), _value(match.weight)
    named = dict(zip(("tensors", "dim"), match.cat.args, strict=False)) | match.cat.kwargs
    if named.get("dim", named.get("axis", 0)) not in {-1, value.dim() - 1}:
        return f"{match.cat} does not join the last axis"
    tensors = [_value(part) for part in match.parts]
    if reason := _uneven(match.cat, value, tensors):
        return reason
    width = sum(int(tensor.shape[-1]) for tensor in tensors)
    if weight.dim() != 2 or sizes_of(weight.shape[1:]) != (width,):  # noqa: PLR2004
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


def _part_in_place(graph: Graph, match: _TorchMatch) -> None:
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
