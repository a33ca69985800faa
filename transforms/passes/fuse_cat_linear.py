"""Apply a linear layer to the parts of a concatenation instead of concatenating them first."""

from __future__ import annotations

import functools
import math
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch.fx import Node

from transforms.graph.editor import ProgramEditor, fake_value
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.schemas import is_elementwise
from transforms.passes.axes import sizes_of
from transforms.passes.pointwise_chains import Affine, read_step
from zoo.errors import UsageError

aten = torch.ops.aten

_VIEWS = (
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten.unsqueeze.default,  # from the decomposed linear layer of a vector
)
GATES = ("measured", "open")
_MOST_PARTS = 4
_LEAST_WIDTH, _MOST_WIDTH = 64, 2048  # of a part, and of all together
_LEAST_RATIO = 16  # total columns per feature of one addition
_FLOAT32 = 4
_LEAST_BYTES = 16 * 2**20  # a smaller concatenation stays in the caches


class _Match(NamedTuple):
    """A match of linear(view(cat(parts, -1))), where the view is optional."""

    node: Node  # the linear
    step: Affine  # the affine step that the linear was read as
    cat: Node
    parts: tuple[Node, ...]
    value: torch.Tensor  # the concatenation's
    values: tuple[torch.Tensor, ...]  # the parts'
    view: Node | None


class FuseCatLinear(GraphPass):
    """Replaces Linear(Cat(x, y), w, b) with Linear(x, w_x, b) + Linear(y, w_y).

    The weight's columns are split like the last axis of the concatenation; the bias is added once.
    Matches linear, mm, addmm and matmul by a constant, also after a view that keeps the last axis.
    A dynamic number of rows counts as its lower bound.

    Refuses, with a reason, an axis other than the last, parts with different leading shapes or
    dtypes, a concatenation with other users, and what the gate denies: the gate "measured" applies
    `denial`, for the CPU; "open" denies nothing, for other targets.
    """

    def __init__(self, *, gate: str = "measured") -> None:
        if gate not in GATES:
            advice = f"It takes: {', '.join(GATES)}"
            raise UsageError(f"pass {self.name}", f"has no gate {gate!r}", advice)
        self._gate = gate

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Rewrite every concatenation where it is correct and pays."""
        for node in list(editor.graph.nodes):
            match = _match(editor, node)
            if match is None:
                continue
            if reason := _fault(match) or _denial(self._gate, match):
                journal.refused(node, reason)
            else:
                _part(editor, match)
                journal.changed(
                    f"applied {node.name} to the {len(match.parts)} parts of {match.cat.name}"
                )


def _match(editor: ProgramEditor, node: Node) -> _Match | None:
    step = read_step(editor, node) if node.op == "call_function" else None
    if not isinstance(step, Affine):
        return None
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
    return _Match(node, step, cat, parts, fake_value(cat), values, view)


def _keeps_last_axis(view: Node, width: int) -> bool:
    value = fake_value(view)
    if view.target is aten.unsqueeze.default:
        axis: Any = view.args[1]
        return bool(axis % value.dim() != value.dim() - 1)
    return bool(value.shape[-1] == width)


def _fault(match: _Match) -> str | None:
    """Return why splitting would be wrong, by axes, sizes, dtypes and readers."""
    cat, value, weight = match.cat, match.value, match.step.weight
    named = dict(zip(("tensors", "dim"), cat.args, strict=False)) | cat.kwargs
    if named.get("dim", 0) not in {-1, value.dim() - 1}:
        return f"{cat} does not join the last axis"
    for joined in (cat, match.view):
        if joined is not None and len(joined.users) > 1:
            return f"{joined} has other users, which need it joined"
    lead, sizes = sizes_of(value.shape)[:-1], [sizes_of(part.shape) for part in match.values]
    if any(size[:-1] != lead or not isinstance(size[-1], int) for size in sizes):
        return f"a part has another leading shape than {cat}, or a dynamic width"
    if sizes_of(weight.shape)[1:] != (sum(int(size[-1]) for size in sizes),):
        return f"the map does not contract the axis that {cat} joins"
    tensors = (value, weight, *match.values)
    if len({(tensor.dtype, tensor.device) for tensor in tensors}) > 1:
        return f"the parts of {cat} and the weight are not all of one dtype and device"
    return None


def _part(editor: ProgramEditor, match: _Match) -> None:
    """Replace the linear by one linear per part, added up from the left."""
    step, call = match.step, functools.partial(editor.call, like=match.node)

    def held(name: str, value: torch.Tensor) -> Node:
        plain = value.clone(memory_format=torch.contiguous_format)
        return editor.add_constant(f"{step.name}_part_{name}", plain)

    terms, start = [], 0
    for number, (part, value) in enumerate(zip(match.parts, match.values, strict=True)):
        end = start + int(value.shape[-1])
        weight = held(str(number), step.weight[:, start:end])
        bias = held("bias", step.bias) if number == 0 and step.bias is not None else None
        terms.append(call(aten.linear.default, part, weight, bias))
        start = end
    total = reduce(functools.partial(call, aten.add.Tensor), terms)
    if match.view is not None:
        geometry: Any = match.view.args[1]
        target: Any = aten.unsqueeze.default
        if match.view.target is not target:  # keep the view's sizes but for the last axis
            target, geometry = aten.view.default, [*geometry[:-1], step.weight.shape[0]]
        total = call(target, total, geometry)
    editor.replace(match.node, total)


class Shape(NamedTuple):
    """The numbers that determine the speed."""

    rows: int  # all leading axes together
    widths: tuple[int, ...]  # of the parts
    features: int  # the linear's outputs
    itemsize: int  # bytes


def denial(shape: Shape) -> str | None:
    """Return why the rewrite would not pay; None if it does.

    `shape` has the smallest possible number of rows.
    """
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


def _denial(gate: str, match: _Match) -> str | None:
    """Return why splitting would not pay; None if it does."""
    if gate == "open":
        return None
    if computed := next((part for part in match.parts if is_elementwise(part)), None):
        return f"{computed} is computed elementwise, straight into the concatenation"
    widths = tuple(int(value.shape[-1]) for value in match.values)
    rows = math.prod(_least(size) for size in match.value.shape[:-1])
    features = int(match.step.weight.shape[0])
    return denial(Shape(rows, widths, features, match.value.element_size()))


def _least(size: int | torch.SymInt) -> int:
    if not isinstance(size, torch.SymInt):
        return size
    return max(0, int(size.node.shape_env.bound_sympy(size.node.expr).lower))
