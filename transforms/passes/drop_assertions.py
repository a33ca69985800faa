"""Drop a program's assertions on its sizes, once they are proven for all sizes.

If the code of a model asks something of a dynamic size, torch.export looks for a proof that the
answer is the same for the whole range, by algebra alone; it gives up on minima, divisions and
remainders, such as those of a cache that is repeated for grouped queries. Instead it can leave the
question in the graph, as an assertion. A range is finite, so all its sizes can be tried in one
computation on tensors of sizes.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import sympy
import torch
from torch._guards import detect_fake_mode
from torch.export import ExportedProgram
from torch.fx.experimental import symbolic_shapes
from torch.fx.experimental.symbolic_shapes import RuntimeAssert
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import TensorReferenceAnalysis

from transforms.graph.editor import ProgramEditor
from transforms.graph.graph_pass import Journal
from transforms.graph.record import user_line
from transforms.passes.canonical import CanonicalPass
from zoo.errors import ExportError

_MOST_TRIED = 10_000_000  # combinations of sizes: seconds for each assertion
_LARGEST_STEP = 64  # searched for if not every size satisfies an assertion
_ASSERTIONS = (torch.ops.aten._assert_scalar.default,)


def naming_lines() -> AbstractContextManager[object]:
    """Make the user's line the message of an assertion on sizes, inside the block."""

    def noted(expression: Any, _: str, stack: Any) -> RuntimeAssert:
        return RuntimeAssert(expression, user_line("".join(traceback.format_stack())), stack)

    return patch.object(symbolic_shapes, "RuntimeAssert", noted)


class DropAssertions(CanonicalPass):
    """Replaces what a program asserts of its sizes with nothing, once that holds for all of them.

    It takes programs exported with `prefer_deferred_runtime_asserts_over_guards` inside
    `naming_lines`, as `deferred` tells. It raises ExportError if an assertion fails for some size,
    or if there are too many sizes to try.
    """

    def __init__(self, *, deferred: bool) -> None:
        self._deferred = deferred

    def applies(self, program: ExportedProgram) -> bool:  # noqa: ARG002
        """Return whether the program was exported with deferred assertions."""
        return self._deferred

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Check each assertion for all sizes, and drop it."""
        place = editor.place
        ranges = {
            symbol: range(int(bounds.lower), int(bounds.upper) + 1)
            for symbol, bounds in editor.program.range_constraints.items()
            if symbol.is_Symbol
        }
        axes = _axes(editor)
        mode: Any = detect_fake_mode([node.meta.get("val") for node in editor.graph.nodes])
        # The graph lacks assertions on floats, and those that another one seems to imply.
        for asserted in mode.shape_env.deferred_runtime_asserts.get(None, ()):
            _settle(place, mode.shape_env.replace(asserted.expr), ranges, axes, asserted.msg)
        for node in editor.calls(*_ASSERTIONS):
            condition: Any = node.args[0]
            value = condition.meta["val"] if isinstance(condition, torch.fx.Node) else condition
            if isinstance(value, torch.SymBool):  # otherwise torch knew the answer
                _settle(place, value.node.shape_env.replace(value.node.expr), ranges, axes)
            editor.graph.erase_node(node)
            journal.changed(f"{node.name} holds for all sizes")


_Axes = dict[Any, tuple[str, int]]  # symbol of a size -> the input and axis where it occurs


def _axes(editor: ProgramEditor) -> _Axes:
    found: _Axes = {}
    for node in editor.graph.nodes:
        value: Any = node.meta.get("val") if node.op == "placeholder" else None
        for axis, size in enumerate(getattr(value, "shape", ())):
            if isinstance(size, torch.SymInt):
                found.setdefault(size.node.expr, (node.name, axis))
    return found


def _in_words(expression: Any, axes: _Axes) -> str:
    """Return an expression of sizes, with `x.shape[1]` for the symbol of axis 1 of x."""
    named = {s: "{}.shape[{}]".format(*axes[s]) for s in expression.free_symbols if s in axes}
    return str(expression.xreplace({s: sympy.Symbol(n, integer=True) for s, n in named.items()}))


def _settle(
    place: str, expression: Any, ranges: Mapping[Any, range], axes: _Axes, site: str = ""
) -> None:
    """Check an assertion made at `site` for every size; raise ExportError if one fails."""
    symbols = sorted(expression.free_symbols, key=str)
    if any(symbol not in ranges for symbol in symbols):
        fact = f"what is computed decides a size{site}: {expression}"
        raise ExportError(place, fact, "Let sizes follow from the inputs' shapes alone")
    named = {s: "axis {1} of {0}".format(*axes[s]) if s in axes else str(s) for s in symbols}
    advice = f"Narrow the range of {' or '.join(named.values())}"
    if math.prod(len(ranges[symbol]) for symbol in symbols) > _MOST_TRIED:
        asked = _in_words(expression, axes)
        fact = f"cannot try {asked}{site} with all sizes: they are too many"
        raise ExportError(place, fact, advice)
    sizes = [ranges[symbol] for symbol in symbols]
    held = _held(expression, dict(zip(symbols, sizes, strict=True)))
    for places in (~held).nonzero()[:1].tolist():
        found = zip(named.values(), sizes, places, strict=True)
        known = ", ".join(f"{name} = {each[place]}" for name, each, place in found)
        asked = _in_words(expression, axes)
        fact = f"is another program at {known}: {asked} does not hold there{site}"
        axis_by_axis = enumerate(zip(named.values(), sizes, strict=True))
        fitting = [n + _where_it_holds(held.movedim(i, 0), each) for i, (n, each) in axis_by_axis]
        step = f"Narrow the range of {' or '.join(fitting)}{_together(held, sizes)}"
        raise ExportError(place, fact, step)


def _together(held: torch.Tensor, sizes: Sequence[range]) -> str:
    """Return advice to share one Dim if the assertion holds for equal sizes; else empty."""
    common = set.intersection(*map(set, sizes)) if len(sizes) > 1 else set()
    same = common and all(held[tuple(map(range.index, sizes, [n] * len(sizes)))] for n in common)
    return ", or give all one Dim: it holds where they are equal" if same else ""


def _where_it_holds(held: torch.Tensor, sizes: range) -> str:
    """Return advice on the first axis' sizes that hold with all others; empty if there is none."""
    fits = held.reshape(len(sizes), -1).all(1)
    fit = [size for size, each in zip(sizes, fits, strict=True) if each]
    edges = sorted({sizes[0] - 1, *sizes, sizes[-1] + 1} - set(fit))
    below, above = max(pairwise(edges), key=lambda ends: ends[1] - ends[0])
    if (run := above - below - 1) > 1 and run * 2 > len(fit):
        return f": it holds from {below + 1} to {above - 1}"
    held_sizes, others = set(fit), set(sizes) - set(fit)
    for step in range(2, min(_LARGEST_STEP, sizes[-1] // 2) + 1):
        low, high = max(2, -(-sizes[0] // step)), sizes[-1] // step  # torch takes no least Dim of 1
        multiples = set(range(low * step, sizes[-1] + 1, step))
        if low >= high:
            continue
        if multiples <= held_sizes and len(multiples) * 3 > len(fit):
            return f": it holds of multiples of {step}, {step} * Dim(..., min={low}, max={high})"
        if multiples == others:
            return f": it holds of no multiple of {step}; try an example of such a size for these"
    return ""


class _AllAtOnce(TensorReferenceAnalysis):
    """Arithmetic on tensors of positive sizes."""

    mod: Any = staticmethod(torch.remainder)
    python_mod = mod
    int_truediv: Any = staticmethod(lambda a, b: a.double() / b)


def _held(expression: Any, ranges: Mapping[Any, range]) -> torch.Tensor:
    """Return a bool tensor of the sizes for which it holds, with an axis for each symbol."""
    sizes = [torch.arange(each.start, each.stop) for each in ranges.values()]
    grid = torch.meshgrid(sizes, indexing="ij") if sizes else ()
    found = sympy_interp(_AllAtOnce, dict(zip(ranges, grid, strict=True)), expression)
    held: torch.Tensor = found.expand([len(each) for each in sizes])
    return held
