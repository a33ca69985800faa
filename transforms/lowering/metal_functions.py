"""Functions of numbers that Metal has, and torch's generator of shaders lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._inductor.codegen import mps
from torch._inductor.virtualized import V

from transforms.lowering.eager_numbers import fault_place

if TYPE_CHECKING:
    from torch._inductor.codegen.common import CSEVariable


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
    def sign(x: Any) -> str:
        """-1, 0 or 1; 0 for -0 and NaN."""
        return f"static_cast<decltype({x})>(({x} > 0) - ({x} < 0))"

    @staticmethod
    def expm1(x: Any) -> str:
        """exp(x) - 1, also for small ones."""
        return f"menagerie::expm1({x})"

    @staticmethod
    def log1p(x: Any) -> str:
        """log(1 + x), also for small ones."""
        return f"c10::metal::log1p(static_cast<float>({x}))"

    @staticmethod
    def erfc(x: Any) -> str:
        """1 - erf(x), also for large ones."""
        return f"menagerie::erfc({x})"

    @staticmethod
    def erfcx(x: Any) -> str:
        """erfc(x) * exp(x * x)."""
        return f"c10::metal::erfcx(static_cast<float>({x}))"

    @staticmethod
    def lgamma(x: Any) -> str:
        """The logarithm of the gamma function's size."""
        return f"menagerie::lgamma({x})"

    @staticmethod
    def ndtri(x: Any) -> str:
        """The normal distribution's quantile."""
        return f"menagerie::ndtri({x})"

    @staticmethod
    def hypot(x: CSEVariable, y: CSEVariable) -> str:
        """The length of a vector of two numbers."""
        return f"menagerie::hypot({x}, {y})"

    @staticmethod
    def nextafter(x: CSEVariable, towards: CSEVariable) -> str:
        """The number beside another."""
        return _in_float("nextafter", x, towards)

    @staticmethod
    def ldexp(x: CSEVariable, exponent: CSEVariable) -> str:
        """A number times a power of two."""
        return f"metal::ldexp(static_cast<float>({x}), static_cast<int>({exponent}))"

    @staticmethod
    def frexp(x: CSEVariable) -> tuple[CSEVariable, CSEVariable]:
        """A number's fraction and exponent."""
        cse, keys = V.kernel.cse, (f"frexp({x})[0]", f"frexp({x})[1]")
        if cse.try_get(keys[0]) is None:
            fraction, exponent = cse.newvar(dtype=torch.float32), cse.newvar(dtype=torch.int32)
            V.kernel.compute.writelines(
                [
                    f"int {exponent};",
                    f"float {fraction} = metal::frexp(static_cast<float>({x}), {exponent});",
                ]
            )
            for key, variable in zip(keys, (fraction, exponent), strict=True):
                cse.put(key, variable)
        return cse.get(keys[0]), cse.get(keys[1])

    @staticmethod
    def truncdiv(a: CSEVariable, b: CSEVariable) -> str:
        """An integer divided by another, towards zero."""
        return _divided("kTruncated", a, b)

    @staticmethod
    def floordiv(a: CSEVariable, b: CSEVariable) -> str:
        """An integer divided by another, downwards."""
        return _divided("kFloored", a, b)

    @staticmethod
    def mod(a: CSEVariable, b: CSEVariable) -> str:
        """What an integer's division towards zero leaves."""
        return _divided("kModulus", a, b)

    @staticmethod
    def remainder(a: Any, b: Any) -> str:
        """What a division downwards leaves."""
        if a.dtype.is_floating_point or b.dtype.is_floating_point:
            return f"menagerie::remainder({a}, {b})"
        return _divided("kRemainder", a, b)

    @staticmethod
    def logical_xor(a: CSEVariable, b: CSEVariable) -> str:
        """Whether just one of two numbers is not nought."""
        return f"(static_cast<bool>({a}) != static_cast<bool>({b}))"


def _divided(division: str, a: Any, b: Any) -> str:
    kind = mps.DTYPE_TO_METAL[torch.promote_types(a.dtype, b.dtype)]
    operands = f"static_cast<{kind}>({a}), static_cast<{kind}>({b})"
    if not (b.bounds.is_singleton() and b.bounds.lower != 0):
        fault = V.kernel.fault(f"an integer is divided by zero: {fault_place()}")
        operands += f", fault, {fault}"
    return f"menagerie::divided<menagerie::Division::{division}>({operands})"


def _in_float(function: str, *operands: CSEVariable) -> str:
    """A call in single precision, in which shaders compute what is stored in halves."""
    return f"metal::{function}({', '.join(f'static_cast<float>({each})' for each in operands)})"
