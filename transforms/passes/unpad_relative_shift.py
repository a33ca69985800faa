"""Shift the rows of relative attention scores by viewing them as other rows, without padding.

Transformer-XL's shift (appendix B of arXiv:1901.02860) pads each row of scores x (q, p) with one
number in front, views the memory as rows of another length and drops the first:

    y[i, j] = x[i, q - 1 - i + j]    for i < q and j < k

In x's own memory y[i, j] is at i p + q - 1 - i + j = (q - 1) + i (p - 1) + j: rows of p - 1
numbers, of which the first k are read, from the number q - 1 on.
"""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch import Tensor
from torch.fx import Node

from transforms.graph.aliasing import Aliasing
from transforms.graph.editor import ProgramEditor, fake_value
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.guards import surely_equal
from transforms.graph.layouts import Unfit, downstream_values
from transforms.graph.schemas import bound_arguments
from transforms.graph.traced import write
from transforms.passes.axes import Size, sizes_of

aten = torch.ops.aten

_SLICES = (aten.slice.Tensor,)
_PADS = (aten.pad.default, aten.constant_pad_nd.default)
_VIEWS = (aten.view.default, aten.reshape.default)


class UnpadRelativeShift(GraphPass):
    """Replaces Slice(View(Slice(View(Pad(x))))) with Copy(Slice(View(Slice(View(x))))).

    Code for the shift as models write it divides for every element, by polynomials of dynamic
    sizes. Shifts are refused if they keep numbers of the padding or of another row (k is more than
    p - q + 1, or not certainly less than p), if their scores are not row-major, or if their memory
    is returned.
    """

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Replace every shift that can be replaced."""
        aliasing = editor.aliasing()
        for node in editor.calls(*_SLICES):
            scores = shifted_scores(node)
            if scores is None:
                continue
            reason = _replace(editor, aliasing, scores, node)
            if reason is None:
                journal.changed(f"{node.name} shifts {scores.name} in place of its copy")
            else:
                journal.refused(node, reason)


def shifted_scores(columns: Node) -> Node | None:
    """Return the scores, (..., q, p), of the shift that ends in `columns`; None if none does."""
    chain, node = list[Node](), columns
    for wanted in (_SLICES, _VIEWS, _SLICES, _VIEWS, _PADS):
        if node.target not in wanted:
            return None
        chain.append(node)
        node = node.all_input_nodes[0]
    _, regrouped, dropped, viewed, pad = chain
    mode, sizes = bound_arguments(pad).get("mode", "constant"), fake_value(node).shape
    if (mode, list(pad.args[1])) != ("constant", [1, 0]) or len(sizes) < 2:  # type: ignore[arg-type]  # noqa: PLR2004
        return None
    *leading, rows, length = sizes
    fits = (
        _is_slice(columns, -1, first=0)
        and _is_slice(dropped, -2, first=1)
        and _regroups(viewed, (*leading, length + 1, rows))
        and _regroups(regrouped, (*leading, rows, length))
    )
    return node if fits else None


def _is_slice(node: Node, axis: int, *, first: int) -> bool:
    """Return whether a node slices an axis from `first` with step 1; from 1 up to the end."""
    bound, value = bound_arguments(node), fake_value(node.all_input_nodes[0])
    if bound["dim"] % value.dim() != axis % value.dim() or bound["step"] != 1:
        return False
    ends = first == 0 or surely_equal([fake_value(node).shape[axis]], [value.shape[axis] - first])
    return ends and (bound["start"] or 0) == first


def _regroups(node: Node, wanted: tuple[Any, ...]) -> bool:
    """Return whether a view requests these sizes; one of them may be left to be inferred."""
    sizes = [_value(size) for size in node.args[1]]  # type: ignore[union-attr]
    if len(sizes) != len(wanted):
        return False
    inferred = [isinstance(size, int) and size == -1 for size in sizes]
    pairs = zip(sizes, wanted, inferred, strict=True)
    return sum(inferred) <= 1 and all(surely_equal([a], [b]) for a, b, free in pairs if not free)


def _value(size: Any) -> Any:
    return fake_value(size) if isinstance(size, Node) else size


def room_beside(scores: Node, columns: Node) -> tuple[Size, Size]:
    """Return how many more columns fit without the next row's, and below the full length."""
    rows, length, kept = sizes_of((*fake_value(scores).shape[-2:], fake_value(columns).shape[-1]))
    return length - rows + 1 - kept, length - 1 - kept


def is_certain(editor: ProgramEditor, size: Size) -> bool:
    """Return whether a size is never negative: it never decreases, and its least value is not."""
    size = sympy.sympify(size)
    lowest = {symbol: editor.least(symbol) for symbol in size.free_symbols}
    grows = all(sympy.diff(size, symbol).is_nonnegative for symbol in lowest)
    return grows and None not in lowest.values() and bool(size.subs(lowest) >= 0)


def _replace(editor: ProgramEditor, aliasing: Aliasing, scores: Node, columns: Node) -> str | None:
    """Replace the shift by the views, or leave it unchanged and return the reason."""
    kept, (within, before) = bound_arguments(columns)["end"], room_beside(scores, columns)
    length, count = sizes_of((fake_value(scores).shape[-1], fake_value(columns).shape[-1]))
    if not is_certain(editor, within):
        return f"its {count} columns may reach into the next row"
    if not is_certain(editor, before):
        return f"its {count} columns are not certainly fewer than the {length} before"
    if aliasing.returned(columns):
        return "it is returned"
    if not surely_equal([_value(kept)], [fake_value(columns).shape[-1]]):
        return "its columns are counted from the end"

    def shifted(values: Tensor, end: Any) -> Tensor:
        """View memory of (..., q, p) as rows of p - 1 from element q - 1 on, and keep k of each."""
        *leading, rows, length = values.shape
        count = rows * length
        cut = values.view(*leading, count)[..., rows - 1 : count - 1]
        # Copy to row-major: whether rows with these strides already are depends on the sizes.
        rows_kept = cut.view(*leading, rows, length - 1)[..., :end]
        return rows_kept.clone(memory_format=torch.contiguous_format)

    try:
        fresh = write(editor, shifted, scores, kept, like=columns)
        values = downstream_values(editor, {columns: fake_value(fresh)})
    except (Unfit, RuntimeError, ValueError) as fault:
        editor.graph.eliminate_dead_code()
        return str(fault).strip().splitlines()[0]
    aliasing.adopt(fresh)
    editor.set_values(values)
    editor.replace(columns, fresh)
    return None
