"""Functions of numbers that Metal has, and torch's generator of shaders lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch._inductor.codegen import mps

if TYPE_CHECKING:
    from torch._inductor.codegen.common import CSEVariable

__all__ = ["MetalFunctions"]


class MetalFunctions(mps.MetalOverrides):
    """Torch's own, and some more; each gives the expression of its result."""

    @staticmethod
    def sinh(x: CSEVariable) -> str:
        """The hyperbolic sine."""
        return _in_float("sinh", x)

    @staticmethod
    def cosh(x: CSEVariable) -> str:
        """The hyperbolic cosine."""
        return _in_float("cosh", x)

    @staticmethod
    def asinh(x: CSEVariable) -> str:
        """The inverse of the hyperbolic sine."""
        return _in_float("asinh", x)

    @staticmethod
    def acosh(x: CSEVariable) -> str:
        """The inverse of the hyperbolic cosine."""
        return _in_float("acosh", x)

    @staticmethod
    def copysign(x: CSEVariable, sign: CSEVariable) -> str:
        """The magnitude of one number with the sign of another."""
        return _in_float("copysign", x, sign)

    @staticmethod
    def logical_xor(a: CSEVariable, b: CSEVariable) -> str:
        """Whether just one of two numbers is not nought."""
        return f"(static_cast<bool>({a}) != static_cast<bool>({b}))"


def _in_float(function: str, *operands: CSEVariable) -> str:
    """A call in single precision, in which shaders compute what is stored in halves."""
    return f"metal::{function}({', '.join(f'static_cast<float>({each})' for each in operands)})"
