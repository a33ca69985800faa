"""Lets a wrong index or divisor in a generated loop fail the run, where it ended the process.

Inductor checks indices that come from data, an embedding's ids say, where it uses them, and throws.
OpenMP allows no exception to leave a loop's body. So what a body throws is kept, and thrown at the
end of its function, by subclasses of what Inductor generates loops with; checked_loops.h has the
C++. Torch's own note of a division by zero is one variable for all runs of a process: it is left
out, and divisions report to the function's own (cpu_functions.py).
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from torch._inductor.codegen.common import BracesBuffer
from torch._inductor.codegen.cpp import (
    CppKernel,
    CppKernelProxy,
    CppScheduling,
    CppTile2DKernel,
    CppVecKernel,
    KernelGroup,
)

from transforms.lowering.eager_numbers import OUTSIDE, fault_place, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

# What generated kernels with checks need in front of them.
FAULTS: Final = Path(__file__).with_suffix(".h").read_text().replace("#pragma once\n", "")

_TORCHS_NOTE = "inductor_cpu_integer_div_error"


class _Function(KernelGroup):
    """One C++ function; it throws behind its loops what they have kept."""

    def codegen_group(self, name: str | None = None) -> str:
        """The function's text."""
        self.stack.close()  # the loops are complete: no parallel region is open any more
        if "loop_fault" in self.loops_code.getvalue():
            loops, self.loops_code = self.loops_code, BracesBuffer()
            self.loops_code.writeline("LoopFault loop_fault;")
            self.loops_code.splice(loops)
            self.loops_code.writeline("loop_fault.rethrow();")
        lines = super().codegen_group(name).splitlines(keepends=True)
        return "".join(line for line in lines if _TORCHS_NOTE not in line)


class _Checked(CppKernel):
    """Loops of a kind; a body with a check keeps what it throws, and names the model's line."""

    def indirect_assert(self, var: Any, lower: Any, upper: Any, mask: Any = None) -> str:
        """The check of an index."""
        check: str = super().indirect_assert(var, lower, upper, mask)
        condition = check.partition(', "index out of bounds')[0]
        return f"{condition}, {quoted(f'{OUTSIDE}: {fault_place()}')})"

    def gen_body(self, code: BracesBuffer | None = None) -> BracesBuffer:
        """The innermost loop's body."""
        return self._keeping(super().gen_body(code))

    @contextmanager
    def write_to_suffix(self) -> Iterator[None]:
        """Let what is computed with a reduction's result be written behind its loop."""
        before, self.reduction_suffix = self.reduction_suffix, BracesBuffer()
        with super().write_to_suffix():
            yield
        before.splice(self._keeping(self.reduction_suffix))
        self.reduction_suffix = before

    def _keeping(self, body: BracesBuffer) -> BracesBuffer:
        if f"{self.assert_function}(" not in body.getvalue():
            return body
        code = BracesBuffer()
        code.writeline("try")
        with code.indent():
            code.splice(body)
        code.writeline("catch (...) { loop_fault.keep(); }")
        return code


class _Scalars(_Checked):
    pass


class _Vectors(_Checked, CppVecKernel):
    pass


class _Tiles(_Vectors, CppTile2DKernel):
    pass


class _Loops(CppKernelProxy):
    kernel_cls = _Scalars
    vec_kernel_cls = _Vectors
    tile2d_kernel_cls = _Tiles


class CheckedScheduling(CppScheduling):
    """Torch's own generation of C++ loops, but for their faults."""

    kernel_proxy_cls = _Loops

    def reset_kernel_group(self) -> None:
        """Begin a function."""
        self.kernel_group = _Function()  # type: ignore[no-untyped-call]
