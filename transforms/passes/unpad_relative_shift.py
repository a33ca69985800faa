"""Shifts the rows of relative attention scores by cutting them anew, without padding them.

Transformer-XL's shift (appendix B of arXiv:1901.02860) pads each row of scores x (q, p) with one
number in front, takes the memory for rows of another length and drops the first:

    y[i, j] = x[i, q - 1 - i + j]    for i < q and j < k

In x's own memory y[i, j] is at i p + q - 1 - i + j = (q - 1) + i (p - 1) + j: rows of p - 1
numbers, of which the first k are read, from the number q - 1 on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import sympy
import torch
from torch import Tensor
from torch.fx import Node

from transforms.graph.aliasing import Aliasing
from transforms.graph.editor import ProgramEditor
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.guards import surely_equal
from transforms.graph.layouts import Unfit, downstream_values
from transforms.graph.schemas import bound_arguments, nodes_in
from transforms.graph.traced import inline, trace
from transforms.passes.axes import Size, sizes_of

aten = torch.ops.aten

_PADS = (aten.pad.default, aten.constant_pad_nd.default)
_VIEWS = (aten.view.default, aten.reshape.default)


class _Shift(NamedTuple):
    """The calls of a shift, from the pad to the slice of its columns."""

    pad: Node
    columns: Node

    @property
    def scores(self) -> Node:
        """What is shifted: (..., q, p)."""
        return self.pad.all_input_nodes[0]

    @property
    def sizes(self) -> tuple[Size, Size, Size]:
        """Rows q, row length p and kept columns k."""
        of_scores, of_columns = (n.meta["val"].shape for n in (self.scores, self.columns))
        rows, length, kept = sizes_of((*of_scores[-2:], of_columns[-1]))
        return rows, length, kept


class UnpadRelativeShift(GraphPass):
    """Replaces Slice(View(Slice(View(Pad(x))))) with Copy(Slice(View(Slice(View(x))))).

    The shift of relative positions, as Transformer-XL, Conformer and Parakeet have it, read from
    places that are linear in the indices. As it is written in models, generated code for it
    with dynamic sizes has to divide for every element, and to divide polynomials of the sizes to
    find out by what.

    Refuses a shift that keeps numbers which the padding or another row would give (k is more than
    p - q + 1, or not certainly less than p), one that scores laid out otherwise than row by row do
    not allow, and one whose memory is handed out.
    """

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Replace every shift that may be replaced."""
        aliasing = editor.aliasing()
        for node in editor.calls(aten.slice.Tensor):
            shift = _shift(node)
            if shift is None:
                continue
            reason = next(_refusals(editor, aliasing, shift), None)
            if reason is None:
                reason = _replace(editor, aliasing, shift)
            if reason is None:
                journal.changed(f"{node.name} shifts {shift.scores.name} in place of its copy")
            else:
                journal.refused(node, reason)


def _shift(columns: Node) -> _Shift | None:
    """Return the shift that ends with a slice of columns; None where it ends none."""
    chain = _chain(columns, _VIEWS, (aten.slice.Tensor,), _VIEWS, _PADS)
    if chain is None:
        return None
    regrouped, dropped, viewed, pad = chain
    scores = pad.all_input_nodes[0].meta["val"]
    if scores.dim() < 2 or list(pad.args[1]) != [1, 0]:  # type: ignore[arg-type]  # noqa: PLR2004
        return None
    if pad.target is aten.pad.default and bound_arguments(pad)["mode"] != "constant":
        return None
    leading, (rows, length) = scores.shape[:-2], scores.shape[-2:]
    if not (_is_slice(columns, -1, first=0) and _is_slice(dropped, -2, first=1)):
        return None
    if not _regroups(viewed, (*leading, length + 1, rows)):
        return None
    return _Shift(pad, columns) if _regroups(regrouped, (*leading, rows, length)) else None


def _chain(node: Node, *targets: tuple[Any, ...]) -> list[Node] | None:
    """Return the calls before a node, nearest first, where they call these."""
    found: list[Node] = []
    for wanted in targets:
        inputs = node.all_input_nodes
        if not inputs or inputs[0].target not in wanted:
            return None
        node = inputs[0]
        found.append(node)
    return found


def _is_slice(node: Node, axis: int, *, first: int) -> bool:
    """Return whether it slices an axis from `first` on without gaps; from 1: to the end."""
    bound = bound_arguments(node)
    value = node.args[0].meta["val"]  # type: ignore[union-attr]
    if bound["dim"] % value.dim() != axis % value.dim() or bound["step"] != 1:
        return False
    if (bound["start"] or 0) != first:
        return False
    kept, whole = node.meta["val"].shape[axis], value.shape[axis]
    return first == 0 or surely_equal([kept], [whole - first])


def _regroups(node: Node, wanted: tuple[Any, ...]) -> bool:
    """Return whether a view is asked for these sizes; one of them may be left to be inferred."""
    sizes = [_value(size) for size in node.args[1]]  # type: ignore[union-attr]
    if len(sizes) != len(wanted):
        return False
    inferred = [isinstance(size, int) and size == -1 for size in sizes]
    pairs = zip(sizes, wanted, inferred, strict=True)
    return sum(inferred) <= 1 and all(surely_equal([a], [b]) for a, b, free in pairs if not free)


def _value(size: Any) -> Any:
    return size.meta["val"] if isinstance(size, torch.fx.Node) else size


def _refusals(editor: ProgramEditor, aliasing: Aliasing, shift: _Shift) -> Iterator[str]:
    rows, length, kept = shift.sizes
    if not _is_certain(editor, length - rows + 1 - kept):
        yield f"its {kept} columns may reach into the next row"
    if not _is_certain(editor, length - 1 - kept):
        yield f"its {kept} columns are not certainly fewer than the {length} before"
    if aliasing.returned(shift.columns):
        yield "it is returned"


def _is_certain(editor: ProgramEditor, size: Size) -> bool:
    """Return whether a size is never negative: it grows, and is not at its least."""
    size = sympy.sympify(size)
    lowest = {symbol: editor.least(symbol) for symbol in size.free_symbols}
    grows = all(sympy.diff(size, symbol).is_nonnegative for symbol in lowest)
    return grows and None not in lowest.values() and bool(size.subs(lowest) >= 0)


def _replace(editor: ProgramEditor, aliasing: Aliasing, shift: _Shift) -> str | None:
    """Put the views in the shift's place, or leave it and say why."""
    columns, scores = shift.columns, shift.scores
    kept = bound_arguments(columns)["end"]
    if not surely_equal([_value(kept)], [columns.meta["val"].shape[-1]]):
        return "its columns are counted from the end"
    operands = [scores, *nodes_in(kept)]

    def shifted(values: Tensor, *end: Any) -> Tensor:
        """View memory of (..., q, p) as rows of p - 1 from element q - 1 on, and keep k of each."""
        *leading, rows, length = values.shape
        count = rows * length
        cut = values.view(*leading, count)[..., rows - 1 : count - 1]
        columns = cut.view(*leading, rows, length - 1)[..., : end[0] if end else kept]
        # Row by row again: whether rows of these strides are so already depends on the sizes.
        return columns.clone(memory_format=torch.contiguous_format)

    try:
        traced = trace(editor, shifted, [node.meta["val"] for node in operands])
        [value] = traced.graph.output_node().all_input_nodes
        values = downstream_values(editor, {columns: value.meta["val"]})
    except (Unfit, RuntimeError, ValueError) as fault:
        return str(fault).strip().splitlines()[0]
    fresh = inline(editor, traced, operands, columns)
    aliasing.adopt(fresh)
    editor.set_values(values)
    editor.replace(columns, fresh)
    return None
