"""Whether an expression of sizes is a number, remembered.

Torch asks it at every use of a size, sympy answers from all parts of the expression: half a million
times in an export of sequences. Remembered, it took 0.92 of the processor time of exports and of
Inductor (`wav2vec2_base`, `parakeet_ctc_small`).
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING
from unittest.mock import patch

from sympy.core.expr import Expr

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["number_questions_remembered"]

_REMEMBERED = property(lru_cache(maxsize=None)(Expr.is_number.fget))


@contextmanager
def number_questions_remembered() -> Iterator[None]:
    """Inside the block, sympy looks at an expression once; expressions never change."""
    with patch.object(Expr, "is_number", _REMEMBERED):
        yield
