"""Applies a linear to the parts of a concatenation instead of concatenating them first."""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from transforms.graph.editor import fake_value
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.schemas import bound_arguments, is_elementwise
from transforms.passes.axes import sizes_of
from transforms.passes.pointwise_chains import Affine, read_step
from zoo.errors import UsageError

if TYPE_CHECKING:
    from torch.fx import Node

    from transforms.graph.editor import ProgramEditor


aten = torch.ops.aten

_GATES = ("measured", "open")
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
        if gate not in _GATES:
            fact, step = f"has no gate {gate!r}", f"It takes: {', '.join(_GATES)}"
            raise UsageError(f"pass {self.name}", fact, step)
        self._gate = gate

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
        if computed is not None:
            return f"{computed} is computed elementwise, straight into the concatenation"
        widths = tuple(int(fake_value(part).shape[-1]) for part in match.parts)
        value = fake_value(match.cat)
        rows = math.prod(_least(size) for size in value.shape[:-1])
        return denial(Shape(rows, widths, match.step.weight.shape[0], value.element_size()))


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
    lead = sizes_of(fake_value(match.cat).shape)[:-1]
    sizes = [sizes_of(part.shape) for part in parts]
    if any(each[:-1] != lead or not isinstance(each[-1], int) for each in sizes):
        return f"a part has another leading shape than {match.cat}, or a dynamic width"
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
    terms = []
    for number, (part, columns) in enumerate(
        zip(match.parts, torch.split(step.weight, widths, dim=1), strict=True)
    ):
        weight = editor.add_constant(
            f"{step.name}_part_{number}", columns.clone(memory_format=_PLAIN)
        )
        held = None
        if number == 0 and step.bias is not None:
            bias = step.bias.clone(memory_format=_PLAIN)
            held = editor.add_constant(f"{step.name}_part_bias", bias)
        terms.append(editor.call(aten.linear.default, part, weight, held, like=node))
    return reduce(lambda a, b: editor.call(aten.add.Tensor, a, b, like=node), terms)


_MOST_PARTS = 4
_LEAST_WIDTH, _MOST_WIDTH = 64, 2048  # of a part; of all together
_LEAST_RATIO = 16  # columns in all, for one feature of one addition
_FLOAT32 = 4
_LEAST_BYTES = 16 * 2**20  # a smaller concatenation stays in the caches


class Shape(NamedTuple):
    """What the speed depends on."""

    rows: int  # all leading axes together
    widths: tuple[int, ...]  # of the parts
    features: int  # the linear's outputs
    itemsize: int  # bytes


def denial(shape: Shape) -> str | None:
    """Why the rewrite would not pay; None if it does. `shape` has the fewest rows that may come."""
    additions, width = len(shape.widths) - 1, sum(shape.widths)
    added = shape.features * additions
    checks = (
        (additions >= _MOST_PARTS, f"it has {additions + 1} parts, more than {_MOST_PARTS}"),
        (min(shape.widths) < _LEAST_WIDTH, f"a part is narrower than {_LEAST_WIDTH}"),
        (width > _MOST_WIDTH, f"it is {width} wide, wider than {_MOST_WIDTH}"),
        (shape.itemsize != _FLOAT32, "only float32 was measured"),
        (
            shape.rows * width * shape.itemsize < _LEAST_BYTES,
            f"with {shape.rows} rows (the least that may come) it stays in the caches",
        ),
        (
            width < _LEAST_RATIO * added,
            f"a copy of {width} columns saved promises nothing beside {added} to add",
        ),
    )
    return next((reason for fails, reason in checks if fails), None)


def _least(size: int | torch.SymInt) -> int:
    """The least that a size may be at run time."""
    if not isinstance(size, torch.SymInt):
        return size
    return max(0, int(size.node.shape_env.bound_sympy(size.node.expr).lower))
