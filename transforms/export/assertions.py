"""Assumptions about dynamic sizes that torch.export could not settle: settled size by size.

Where the code of a model asks something of a size, torch.export looks for a proof that the answer
is the same for the whole range, by algebra alone; it gives up on minima, divisions and remainders,
such as those of a cache that is repeated for grouped queries. It can leave the question in the
graph instead, as an assertion. A range has ends, so all its sizes can be tried; where they are too
many, as of samples, all values of what the code makes of them by division can be, as of frames.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from transforms.graph.editor import ProgramEditor
from zoo.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.export import ExportedProgram
    from torch.fx import Node

_MOST_TRIED = 20_000  # combinations of sizes: a second or so for each assertion
_ASSERTIONS = (torch.ops.aten._assert_scalar.default,)


def without_assertions(place: str, program: ExportedProgram) -> ExportedProgram:
    """The program without what it asserts of its sizes, once that holds for all of them.

    Args:
        place: named in errors.
        program: exported with `prefer_deferred_runtime_asserts_over_guards`.

    Raises:
        ExportError: an assertion does not hold for some size, or there are too many to try.
    """
    editor = ProgramEditor(program)
    ranges = {symbol: range(int(r.lower), int(r.upper) + 1) for symbol, r in _ranges(program)}
    axes = _axes(editor)
    for node in editor.calls(*_ASSERTIONS):
        _settle(place, node, ranges, axes)
        editor.graph.erase_node(node)
    return editor.finish()


def _ranges(program: ExportedProgram) -> list[tuple[Any, Any]]:
    return [(symbol, r) for symbol, r in program.range_constraints.items() if symbol.is_Symbol]


def _axes(editor: ProgramEditor) -> dict[Any, str]:
    """Where each size's symbol is an axis of an input, in words."""
    found: dict[Any, str] = {}
    for node in editor.graph.nodes:
        value: Any = node.meta.get("val") if node.op == "placeholder" else None
        for axis, size in enumerate(getattr(value, "shape", ())):
            if isinstance(size, torch.SymInt):
                found.setdefault(size.node.expr, f"axis {axis} of {node.name}")
    return found


def _settle(place: str, node: Node, ranges: Mapping[Any, range], axes: Mapping[Any, str]) -> None:
    """Try an assertion with every size.

    Raises:
        ExportError: it does not hold, or there are too many to try.
    """
    condition = node.args[0]
    value = condition.meta["val"] if isinstance(condition, torch.fx.Node) else condition
    if not isinstance(value, torch.SymBool):
        return  # torch knew the answer
    expression = value.node.shape_env.replace(value.node.expr)
    symbols = sorted(expression.free_symbols, key=str)
    if any(symbol not in ranges for symbol in symbols):
        fact = f"what is computed decides a size: {expression}"
        raise ExportError(place, fact, "Let sizes follow from the inputs' shapes alone")
    if math.prod(len(ranges[symbol]) for symbol in symbols) > _MOST_TRIED:
        if _holds_of_quotients(expression, ranges):
            return
        fact = (
            f"nobody knows whether {expression} holds for all sizes, and they are too many to try"
        )
        raise ExportError(place, fact, f"Narrow the range of {_named(symbols, axes)}")
    if (
        known := _exception(expression, {symbol: ranges[symbol] for symbol in symbols})
    ) is not None:
        held = ", ".join(f"{axes.get(s, s)} = {size}" for s, size in known.items())
        fact = f"is another program at {held}: {expression} does not hold there"
        raise ExportError(place, fact, f"Narrow the range of {_named(symbols, axes)}")


def _exception(expression: Any, ranges: Mapping[Any, range]) -> dict[Any, int] | None:
    """The first sizes of which it does not hold; None if there are none."""
    for sizes in itertools.product(*ranges.values()):
        known = dict(zip(ranges, sizes, strict=True))
        if not sympy_interp(PythonReferenceAnalysis, known, expression):
            return known
    return None


def _holds_of_quotients(expression: Any, ranges: Mapping[Any, range]) -> bool:
    """Whether it holds for all values of the quotients in it, and what sizes are left besides.

    Each quotient is taken for a size of its own, between the bounds that the sizes in it give it.
    That asks for more than is needed, so that a yes is a proof and a no none.
    """
    bounds = {symbol: ValueRanges(sizes[0], sizes[-1]) for symbol, sizes in ranges.items()}
    tried: dict[Any, range] = {}
    for quotient in sorted(expression.atoms(FloorDiv), key=sympy.count_ops, reverse=True):
        if not expression.has(quotient):
            continue  # within another
        values = bound_sympy(quotient, bounds)
        if not (values.lower.is_Integer and values.upper.is_Integer):
            return False
        size = sympy.Dummy(integer=True)
        tried[size] = range(int(values.lower), int(values.upper) + 1)
        expression = expression.xreplace({quotient: size})
    tried |= {symbol: ranges[symbol] for symbol in expression.free_symbols - tried.keys()}
    few = math.prod(map(len, tried.values())) <= _MOST_TRIED
    return few and _exception(expression, tried) is None


def _named(symbols: list[Any], axes: Mapping[Any, str]) -> str:
    return " or ".join(axes.get(symbol, str(symbol)) for symbol in symbols)
