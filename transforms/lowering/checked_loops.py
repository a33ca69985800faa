"""Lets a wrong index in a generated loop fail the run, where it would have ended the process.

Inductor checks indices that come from data, an embedding's ids say, where it uses them. OpenMP
allows no exception to leave a loop's body. So what a body throws is kept, and thrown at the end of
its function, by subclasses of what Inductor generates loops with; checked_loops.h has the C++.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from torch._inductor.codegen.common import BracesBuffer
from torch._inductor.codegen.cpp import CppKernelProxy, CppScheduling, KernelGroup

__all__ = ["FAULTS", "CheckedScheduling"]

# What generated kernels with checks need in front of them.
FAULTS: Final = Path(__file__).with_suffix(".h").read_text().replace("#pragma once\n", "")


class _Function(KernelGroup):
    """One C++ function; it throws behind its loops what they have kept."""

    has_checks = False

    def codegen_group(self, name: str | None = None) -> str:
        """The function's text."""
        self.stack.close()  # the loops are complete: no parallel region is open any more
        if self.has_checks:
            loops, self.loops_code = self.loops_code, BracesBuffer()
            self.loops_code.writeline("LoopFault loop_fault;")
            self.loops_code.splice(loops)
            self.loops_code.writeline("loop_fault.rethrow();")
        return super().codegen_group(name)


class _Loops(CppKernelProxy):
    """A nest of loops; where its innermost body has a check, the body keeps what it throws."""

    def gen_body(self, code: BracesBuffer) -> None:  # type: ignore[override]
        """Write the innermost loop's body."""
        body = BracesBuffer()
        super().gen_body(body)
        if f"{self.assert_function}(" not in body.getvalue():
            code.splice(body)
            return
        self.kernel_group.has_checks = True
        code.writeline("try")
        with code.indent():
            code.splice(body)
        code.writeline("catch (...) { loop_fault.keep(); }")


class CheckedScheduling(CppScheduling):
    """Torch's own generation of C++ loops, but for their faults."""

    kernel_proxy_cls = _Loops

    def reset_kernel_group(self) -> None:
        """Begin a function."""
        self.kernel_group = _Function()  # type: ignore[no-untyped-call]
