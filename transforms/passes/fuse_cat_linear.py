"""Applies a linear to the parts of a concatenation instead of concatenating them first.

`FuseCatLinear` does so in an exported program, whose weights are constants. For users of Inductor
there is the same before autograd::

    torch._inductor.config.pre_grad_custom_pass = CatLinearPreGradPass(gate="open")

There the graph is Dynamo's, whose values are in `meta["example_value"]`, or an exported program's,
with `meta["val"]`. Weights are inputs that training may change, so their columns are taken by views
in the graph, and gradients come out as they should.
"""

from __future__ import annotations

import functools
import math
import operator
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

from transforms.graph.editor import fake_value
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.schemas import is_elementwise
from transforms.passes.axes import sizes_of
from transforms.passes.pointwise_chains import Affine, read_step
from zoo.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch.fx import Graph, Node

    from transforms.graph.editor import ProgramEditor


aten = torch.ops.aten

_VIEWS = (
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten.unsqueeze.default,  # a vector's linear, decomposed
)


class _Match(NamedTuple):
    """linear(view(cat(parts, -1))) of either kind of graph; the view may be missing."""

    node: Node  # the linear
    cat: Node
    parts: tuple[Node, ...]
    value: torch.Tensor  # the concatenation's
    values: tuple[torch.Tensor, ...]  # the parts'
    weight: torch.Tensor  # (features, columns)
    others: tuple[torch.Tensor, ...] = ()  # that are of one dtype and device with all these
    view: Node | None = None


def _part_all(
    nodes: Iterable[Node],
    journal: Journal,
    matched: Callable[[Node], _Match | None],
    fault: Callable[[_Match], str | None],
    part: Callable[[_Match], None],
) -> None:
    """Part every concatenation that `matched` reads, if there is no `fault` and it is worth it.

    A fault is why parting would be wrong, or would not pay, besides the shapes' reasons.
    """
    for node in list(nodes):
        match = matched(node)
        if match is None:
            continue
        if reason := _fault(match) or fault(match):
            journal.refused(node, reason)
        else:
            part(match)
            journal.changed(
                f"applied {node.name} to the {len(match.parts)} parts of {match.cat.name}"
            )


def _fault(match: _Match) -> str | None:
    """Why parting would be wrong, by axes, sizes, dtypes and readers."""
    cat, value = match.cat, match.value
    named = dict(zip(("tensors", "dim"), cat.args, strict=False)) | cat.kwargs
    if named.get("dim", named.get("axis", 0)) not in {-1, value.dim() - 1}:
        return f"{cat} does not join the last axis"
    for joined in (cat, match.view):
        if joined is not None and len(joined.users) > 1:
            return f"{joined} has other users, which need it joined"
    lead, sizes = sizes_of(value.shape)[:-1], [sizes_of(each.shape) for each in match.values]
    if any(each[:-1] != lead or not isinstance(each[-1], int) for each in sizes):
        return f"a part has another leading shape than {cat}, or a dynamic width"
    if sizes_of(match.weight.shape)[1:] != (sum(int(each[-1]) for each in sizes),):
        return f"the map does not contract the axis that {cat} joins"
    everything = (value, match.weight, *match.values, *match.others)
    if len({(tensor.dtype, tensor.device) for tensor in everything}) > 1:
        return f"the parts of {cat} and the weight are not all of one dtype and device"
    return None


def _sum_of_parts(match: _Match, linear: Callable[..., Node], add: Callable[..., Node]) -> Node:
    """Return one linear a part, added up from the left.

    `linear` makes one, of the part's number and node, and its first column and its last.
    """
    terms, start = [], 0
    for number, (part, value) in enumerate(zip(match.parts, match.values, strict=True)):
        end = start + int(value.shape[-1])
        terms.append(linear(number, part, start, end))
        start = end
    return reduce(add, terms)


class FuseCatLinear(GraphPass):
    """Replaces Linear(Cat(x, y), w, b) with Linear(x, w_x, b) + Linear(y, w_y).

    The columns of the weight are parted as the last axis of the concatenation is, and stored as
    constants of their own; the bias is added once. Linear, mm, addmm and matmul by a constant, also
    behind a view that keeps the last axis. Sizes are never specialised: a dynamic number of rows
    counts as its lower bound.

    Refuses, with a reason, another axis than the last, parts of other leading shapes or dtypes, a
    concatenation with other users, and what the gate denies: "measured" by `denial` on the CPU, or
    nothing where it is "open", as suits other targets.
    """

    def __init__(self, *, gate: str = "measured") -> None:
        self._gate = checked_gate(f"pass {self.name}", gate)

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Rewrite every concatenation that is correct to part and worth it."""
        steps: dict[Node, Affine] = {}

        def matched(node: Node) -> _Match | None:
            step = read_step(editor, node) if node.op == "call_function" else None
            if not isinstance(step, Affine):
                return None
            steps[node] = step
            return _match(node, step)

        def fault(match: _Match) -> str | None:
            return _denial(self._gate, match, is_elementwise)

        def part(match: _Match) -> None:
            _part(editor, match, steps[match.node])

        _part_all(editor.graph.nodes, journal, matched, fault, part)


def _match(node: Node, step: Affine) -> _Match | None:
    [operand] = step.operands
    if step.axis != fake_value(operand).dim() - 1:
        return None
    view = operand if operand.target in _VIEWS else None
    cat: Any = operand if view is None else view.args[0]
    if cat.target is not aten.cat.default or len(cat.args[0]) < 2:  # noqa: PLR2004
        return None
    if view is not None and not _keeps_last_axis(view, step.weight.shape[1]):
        return None
    parts = tuple(cat.args[0])
    values = tuple(fake_value(part) for part in parts)
    return _Match(node, cat, parts, fake_value(cat), values, step.weight, view=view)


def _keeps_last_axis(view: Node, width: int) -> bool:
    value = fake_value(view)
    if view.target is aten.unsqueeze.default:
        axis: Any = view.args[1]
        return bool(axis % value.dim() != value.dim() - 1)
    return bool(value.shape[-1] == width)


def _part(editor: ProgramEditor, match: _Match, step: Affine) -> None:
    call = functools.partial(editor.call, like=match.node)

    def held(name: str, value: torch.Tensor) -> Node:
        plain = value.clone(memory_format=torch.contiguous_format)
        return editor.add_constant(f"{step.name}_part_{name}", plain)

    def linear(number: int, part: Node, start: int, end: int) -> Node:
        weight = held(str(number), step.weight[:, start:end])
        bias = step.bias if number == 0 else None
        added = None if bias is None else held("bias", bias)
        return call(aten.linear.default, part, weight, added)

    with editor.graph.inserting_before(match.node):
        total = _sum_of_parts(match, linear, functools.partial(call, aten.add.Tensor))
        if match.view is not None:
            total = _view_like(editor, match.view, total, step.weight.shape[0])
    editor.replace(match.node, total)


def _view_like(editor: ProgramEditor, view: Node, total: Node, features: int) -> Node:
    """`total` brought to the shape of `view`, but for its last axis of `features`."""
    geometry: Any = view.args[1]
    if view.target is aten.unsqueeze.default:
        return editor.call(aten.unsqueeze.default, total, geometry, like=view)
    return editor.call(aten.view.default, total, [*geometry[:-1], features], like=view)


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
    """Return `gate`, or raise UsageError if there is no such one."""
    if gate in GATES:
        return gate
    raise UsageError(place, f"has no gate {gate!r}", f"It takes: {', '.join(GATES)}")


def denial(shape: Shape, least_bytes: int = _LEAST_BYTES) -> str | None:
    """Return why the rewrite would not pay; None if it does.

    The shape is with the fewest rows that may come. A concatenation of fewer than `least_bytes`
    stays in the caches and costs next to nothing.
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


def _denial(
    gate: str,
    match: _Match,
    is_computed: Callable[[Node], bool],
    least_bytes: int = _LEAST_BYTES,
) -> str | None:
    """Why parting would not pay; `is_computed` tells a part that is computed elementwise."""
    if gate == "open":
        return None
    if computed := next((part for part in match.parts if is_computed(part)), None):
        return f"{computed} is computed elementwise, straight into the concatenation"
    widths = tuple(int(value.shape[-1]) for value in match.values)
    rows = math.prod(_least(size) for size in match.value.shape[:-1])
    shape = Shape(rows, widths, int(match.weight.shape[0]), match.value.element_size())
    return denial(shape, least_bytes)


def _least(size: int | torch.SymInt) -> int:
    """The least that a size may be at run time."""
    if not isinstance(size, torch.SymInt):
        return size
    return max(0, int(size.node.shape_env.bound_sympy(size.node.expr).lower))


_CATS = frozenset({torch.cat, torch.concat, torch.concatenate, aten.cat.default})
_LINEARS = frozenset({torch.nn.functional.linear, torch._C._nn.linear, aten.linear.default})
_WRITERS = frozenset({operator.setitem, operator.delitem})
_VALUES = ("example_value", "val")  # where a graph keeps its fake tensors


class CatLinearPreGradPass(CustomGraphPass):
    """Replaces Linear(Cat(x, y), w, b) with Linear(x, w_x, b) + Linear(y, w_y) in place.

    Left alone is whatever FuseCatLinear refuses, by the same gate, and a concatenation behind which
    something is written before the linear. `journal` notes over all graphs what was rewritten, and
    what was refused and why.
    """

    def __init__(self, *, gate: str = "measured") -> None:
        self._gate = checked_gate("fuse_cat_linear before autograd", gate)
        self.journal = Journal()

    def __call__(self, graph: Graph) -> None:
        """Rewrite `graph` in place."""
        part = functools.partial(_part_in_place, graph)
        _part_all(graph.nodes, self.journal, _torch_match, self._fault, part)

    def uuid(self) -> Any:
        """What Inductor's caches key this pass by: its code and its gate."""
        return get_hash_for_files((__file__,), extra=self._gate)

    def _fault(self, match: _Match) -> str | None:
        node = match.cat.next
        while node is not match.node:
            if _may_write(node):
                return f"{node} between them may write a part"
            node = node.next
        device = match.value.device.type
        if self._gate != "open" and device != "cpu":
            return f"it runs on {device}, where nothing was measured"
        return _denial(self._gate, match, _is_elementwise, _LEAST_BYTES_OF_TORCH)


cat_linear_pre_grad_pass = CatLinearPreGradPass()


def _key(node: Node) -> str:
    """Where the graph keeps the value of `node`."""
    return next((key for key in _VALUES if node.meta.get(key) is not None), _VALUES[0])


def _value(node: Any) -> torch.Tensor:
    """The fake tensor that `node` is said to yield."""
    return node.meta[_key(node)]  # type: ignore[no-any-return]


def _is_tensor(node: Any) -> bool:
    return isinstance(node, torch.fx.Node) and isinstance(node.meta.get(_key(node)), torch.Tensor)


def _torch_match(node: Node) -> _Match | None:
    if node.op != "call_function" or node.target not in _LINEARS:
        return None
    given = _linears_operands(node)
    cat, weight = given["input"], given["weight"]
    if not _is_tensor(cat) or cat.op != "call_function" or cat.target not in _CATS:
        return None
    parts = cat.args[0] if cat.args else cat.kwargs.get("tensors")
    if not isinstance(parts, (list, tuple)) or len(parts) < 2:  # noqa: PLR2004
        return None
    if not all(_is_tensor(n) for n in (*parts, weight, node)) or "out" in cat.kwargs:
        return None
    values = tuple(_value(part) for part in parts)
    return _Match(
        node, cat, tuple(parts), _value(cat), values, _value(weight), others=(_value(node),)
    )


def _linears_operands(linear: Node) -> dict[str, Any]:
    return dict(zip(("input", "weight", "bias"), linear.args, strict=False)) | linear.kwargs


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

    By the operator's name: Dynamo's graph holds Python functions, tensor methods, operators.
    """
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    packets = [getattr(torch.ops.aten, str(name), None)]
    overloads = [getattr(p, o) for p in packets if p is not None for o in p.overloads()]
    return any(torch.Tag.pointwise in overload.tags for overload in overloads)


def _part_in_place(graph: Graph, match: _Match) -> None:
    given, call = _linears_operands(match.node), functools.partial(_call, graph)

    def linear(number: int, part: Node, start: int, end: int) -> Node:
        columns = call(torch.narrow, given["weight"], 1, start, end - start)
        bias = given.get("bias") if number == 0 else None
        return call(torch.nn.functional.linear, part, columns, bias)

    with graph.inserting_before(match.node):
        total = _sum_of_parts(match, linear, functools.partial(call, torch.add))
    match.node.replace_all_uses_with(total)
    graph.erase_node(match.node)
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
