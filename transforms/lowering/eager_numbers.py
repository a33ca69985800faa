"""Generated code that computes as eager PyTorch does, where Inductor's own computes otherwise.

Inductor takes the functions of numbers from classes that know which of them are for vectors by
their own dictionaries; so ours are put in their place while code is generated, and no longer.
docs/special-values.md lists what still differs.
"""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import torch
from torch._inductor import lowering
from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides
from torch._inductor.codegen.cpp_utils import cexpr_index
from torch._inductor.virtualized import V, ops

from transforms.graph.record import origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# What a check of an index says, before the place.
OUTSIDE: Final = "an index is out of range"

# What of an operator's name shows that it indexes by values or divides integers.
_CAN_FAIL = ("embedding", "gather", "index", "take", "scatter", "div", "mod", "remainder", "assert")
# By Inductor's name, the name in checked_loops.h.
_DIVISIONS = {
    "truncdiv": "kTruncated",
    "floordiv": "kFloored",
    "mod": "kModulus",
    "remainder": "kRemainder",
}


def fault_place() -> str:
    """The nodes of the loop that is being generated that can fail, with module, file and line."""
    current = V.kernel.current_node
    nodes = sorted(current.node.get_origins() if current else (), key=lambda node: node.name)
    likely = [node for node in nodes if any(word in str(node.target) for word in _CAN_FAIL)]
    return " or ".join(f"{node.name}, {origin(node)}" for node in likely or nodes)


def quoted(text: str) -> str:
    """A literal of C++."""
    return json.dumps(text, ensure_ascii=False)


@contextmanager
def numbers_as_eager() -> Iterator[None]:
    """Let Inductor write our functions inside the block."""
    make = lowering.make_pointwise
    with ExitStack() as stack:
        stack.enter_context(patch.object(lowering, "_div_rn", make(_floor_of_quotient)))
        for name, division in _DIVISIONS.items():
            scalar = _scalar_division(division, getattr(CppOverrides, name))
            stack.enter_context(patch.object(CppOverrides, name, staticmethod(scalar)))
            vector = _vector_division(division)
            vector.__name__ = name  # by which a vector's function finds that of scalars
            stack.enter_context(patch.object(CppVecOverrides, name, staticmethod(vector)))
        yield


def _scalar_division(division: str, of_floats: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def divide(a: Any, b: Any) -> Any:
        if a.dtype.is_floating_point or b.dtype.is_floating_point:
            return of_floats(a, b)
        return f"divided<Division::{division}>({a}, {b}, loop_fault, {quoted(fault_place())})"

    return divide


def _vector_division(division: str) -> Callable[..., str]:
    def divide(a: Any, b: Any) -> str:
        if a.dtype.is_floating_point:
            return _float_remainder(a, b)
        divisor = str(b)
        if V.kernel._load_mask is not None:  # lanes that it hides may hold anything
            one = V.kernel.broadcast(ops.constant(1, b.dtype).value)
            divisor = CppVecOverrides.where(V.kernel._load_mask, b, one)  # type: ignore[no-untyped-call]
        count = cexpr_index(V.kernel.num_elems)  # type: ignore[no-untyped-call]
        place = quoted(fault_place())
        return f"divided<Division::{division}>({a}, {divisor}, {count}, loop_fault, {place})"

    return divide


def _float_remainder(a: Any, b: Any) -> str:
    rest, zero = f"{a}.fmod({b})", f"decltype({a})(0)"
    return (
        f"[&]() {{ const auto rest = {rest}; const auto turned = (rest != {zero}) & "
        f"(({b} < {zero}) ^ (rest < {zero})); "
        f"return decltype({a})::blendv(rest, rest + {b}, turned); }}()"
    )


def _floor_of_quotient(a: Any, b: Any) -> Any:
    """The whole number below a / b, not the rounded quotient's (c10's `div_floor_floating`)."""
    plain, zero = ops.truediv(a, b), ops.constant(0.0, torch.float32)
    overflown = ops.logical_and(ops.isinf(plain), ops.logical_not(ops.isinf(a)))
    rest = ops.where(overflown, zero, ops.fmod(a, b))
    quotient = ops.truediv(ops.sub(a, rest), b)
    turned = ops.logical_and(ops.ne(rest, zero), ops.ne(ops.lt(b, zero), ops.lt(rest, zero)))
    one = ops.constant(1.0, torch.float32)
    quotient = ops.where(turned, ops.sub(quotient, one), quotient)
    floor = ops.floor(quotient)
    half = ops.constant(0.5, torch.float32)
    floor = ops.where(ops.gt(ops.sub(quotient, floor), half), ops.add(floor, one), floor)
    signed_zero = ops.mul(plain, zero)
    floor = ops.where(ops.eq(quotient, zero), signed_zero, floor)
    return ops.where(ops.eq(b, zero), plain, floor)
