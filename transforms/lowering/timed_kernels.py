"""The CPU's wrapper: without AOTInductor's interface, and telling of each generated kernel.

The runtime is told when a kernel begins and ends.
Fallback kernels are the runtime's own, and it knows of them; see timed_kernels.h.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import sympy
from torch._inductor.codegen.cpp_utils import cexpr
from torch._inductor.virtualized import V

from transforms.lowering.fallback_kernels import CheckedWrapper, inserted
from transforms.lowering.interface import DECLARED_ELSEWHERE

if TYPE_CHECKING:
    from collections.abc import Sequence


class TimedWrapper(CheckedWrapper):
    """A wrapper whose generated kernels have a name in a profile."""

    _operands = "0"  # bytes, a C++ expression, of the call that is being written

    def write_header(self) -> None:
        """Torch's includes, and ours behind them."""
        super().write_header()
        if not V.graph.is_const_graph:
            self.header.splice(inserted(Path(__file__).with_suffix(".h")))

    def _write_aoti_interface_header(self) -> None:
        """No interface: it is compiled apart (interface.py)."""
        self.header.splice(DECLARED_ELSEWHERE)

    def _generate_kernel_call_helper(
        self, kernel_name: str, call_args: Sequence[Any], **keywords: Any
    ) -> None:
        self._operands = _bytes_of(call_args)
        super()._generate_kernel_call_helper(kernel_name, call_args, **keywords)

    def wrap_kernel_call(self, name: str, call_args: Sequence[str]) -> str:
        """The call, timed."""
        call = f"{name}({', '.join(call_args)});"
        return f'{{ TimedKernel timed("{name}", {self._operands}); {call} }}'


def _bytes_of(call_args: Sequence[Any]) -> str:
    """What the tensors among the arguments hold, each once, as a C++ expression."""
    total: sympy.Expr = sympy.Integer(0)
    for name in dict.fromkeys(str(argument) for argument in call_args):
        buffer = V.graph.try_get_buffer(name)
        if buffer is not None:
            total += sympy.sympify(buffer.get_numel()) * buffer.get_dtype().itemsize
    text: str = cexpr(V.graph.sizevars.simplify(total))
    return text
