"""The dynamic sizes of a program that was exported by torch.export's own rules, as dimensions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch.utils._sympy.numbers import int_oo

from transforms.export.signature import given
from zoo.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.export import ExportedProgram

    from transforms.export.signature import Dimensions

Shapes = dict[str, tuple[int | str, ...]]  # by input

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BOUNDED = "Say one, e.g. torch.export.Dim('batch', min=1, max=64): both ends are proven"
_INDEPENDENT = "Sizes of a bundle are independent, each a multiple of a number"


def named_sizes(
    place: str, program: ExportedProgram, names: Sequence[str], shapes: Any
) -> tuple[Shapes, Dimensions]:
    """Every input's shape with names for its dynamic axes, and the ranges of these.

    A dimension bears the name of its `torch.export.Dim`, else its input's and axis's.

    Args:
        place: the program, in errors.
        program: as exported.
        names: of its inputs, in order.
        shapes: the `dynamic_shapes` that it was exported with, for the names in it.

    Raises:
        ExportError: if a range has no end, or a size is not a multiple of an independent one.
    """
    found: dict[str, str] = {}  # the expression of a size, and its name
    roots: dict[str, str] = {}  # a symbol, and the expression that it was seen in
    dimensions: Dimensions = {}
    made: Shapes = {}
    for position, (name, value) in enumerate(zip(names, given(program), strict=True)):
        shape: list[int | str] = []
        for axis, size in enumerate(value.shape):
            if isinstance(size, int):
                shape.append(size)
                continue
            where = f"axis {axis} of input {name!r}"
            expression = size.node.expr
            if str(expression) not in found:
                step, symbol = expression.as_coeff_Mul()
                seen = roots.setdefault(str(symbol), str(expression))
                if not symbol.is_Symbol or seen != str(expression):
                    fact = f"{where} is {expression}, which depends on another size"
                    raise ExportError(place, fact, _INDEPENDENT)
                wanted = _dim_name(shapes, position, name, axis) or f"{name}_{axis}"
                while wanted in dimensions:
                    wanted += "_"
                found[str(expression)] = wanted
                dimensions[wanted] = _range(place, where, program, symbol, int(step))
            shape.append(found[str(expression)])
        made[name] = tuple(shape)
    return made, dimensions


def _range(
    place: str, where: str, program: ExportedProgram, symbol: Any, step: int
) -> tuple[int, int, int]:
    bounds = program.range_constraints[symbol]
    if bounds.upper == int_oo:
        raise ExportError(place, f"{where} has no largest size", _BOUNDED)
    return step * max(1, int(bounds.lower)), step * int(bounds.upper), step


def _dim_name(shapes: Any, position: int, name: str, axis: int) -> str:
    """What the user calls an axis; empty where `dynamic_shapes` does not say."""
    axes = _at(shapes, name, position)
    dimension = _at(axes, axis, axis)
    root = getattr(dimension, "root", dimension)  # `batch` of `2 * batch`
    called = getattr(root, "__name__", "")
    return called if isinstance(called, str) and _NAME.fullmatch(called) else ""


def _at(holder: Any, key: Any, position: int) -> Any:
    if isinstance(holder, Mapping):
        return holder.get(key)
    if isinstance(holder, (list, tuple)) and position < len(holder):
        return holder[position]
    return None
