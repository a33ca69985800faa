"""How far an index of generated C++ moves with a loop's variable, in bounded time.

Inductor asks `stride_at_vec_range` for each index, loop and tiling that it weighs, and that asks
`sympy.simplify`. On the index of a relative shift whose batch and length are dynamic, floor
divisions within remainders, one such answer takes 40 s, and after it the stride varies as before.
"""

from __future__ import annotations

from functools import lru_cache

import sympy
from torch._inductor import sizevars

__all__ = ["stride_in_range"]

# Operations of an index. Up to here an answer takes tenths of a second; plain sums of products,
# whose strides are constant, have fewer.
_LONGEST = 100

_simplified = sizevars.stride_at_vec_range


@lru_cache
def stride_in_range(
    index: sympy.Expr, variable: sympy.Symbol, vector_length: int | None = None
) -> sympy.Expr:
    """The difference that one step of a variable makes; of a long index it is not simplified.

    What is not simplified still has the variable in it, which is to Inductor a stride that varies:
    the loop is generated without vectors there, and its results are the same.

    Args:
        index: an offset in elements.
        variable: of the loop.
        vector_length: steps that are computed at once; None: one.
    """
    if not index.has(variable):
        return sympy.S.Zero
    if index.count_ops() <= _LONGEST:
        return _simplified(index, variable, vector_length)
    return index.subs({variable: variable + 1}) - index
