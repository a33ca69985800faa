"""The wrapper that Inductor writes, with every fallback kernel's result and error code looked at.

Kernels lay out their results by rules of their own, and Inductor only compares those with what the
code around them counts on, and that only if an environment variable asks for it. And two kinds of
fallback kernel are called without a look at what they return.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch._inductor import ir
from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
from torch._inductor.utils import IndentedBuffer
from torch._inductor.virtualized import V

from transforms.lowering.constant_calls import with_constants_described_by_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def inserted(header: Path) -> str:
    """The text of a header of ours, to stand inside generated code."""
    return header.read_text().replace("#pragma once\n", "")


class CheckedWrapper(CppWrapperCpu):
    """Torch's own C++ wrapper but for what fallback kernels return, and how constants are told.

    See fallback_kernels.h and constant_calls.py.
    """

    @classmethod
    def create(cls, *_args: Any, **_keywords: Any) -> Self:
        """What Inductor makes a wrapper by; torch's own would make one of torch's class."""
        return cls()

    def write_header(self) -> None:
        """Torch's includes, and ours behind them."""
        super().write_header()  # type: ignore[no-untyped-call]
        if not V.graph.is_const_graph:
            for name in ("fallback_kernels.h", "constant_calls.h"):
                self.header.splice(inserted(Path(__file__).with_name(name)))

    def codegen_model_constructor(self) -> None:
        """The model's constructor, shorter."""
        before, self.prefix = self.prefix, IndentedBuffer()
        super().codegen_model_constructor()  # type: ignore[no-untyped-call]
        before.splice(with_constants_described_by_calls(self.prefix.getvalue()))
        self.prefix = before

    def generate_c_shim_extern_kernel_alloc(
        self, extern_kernel: ir.ExternKernelAlloc, args: list[str]
    ) -> None:
        """The call of a kernel with one result."""
        super().generate_c_shim_extern_kernel_alloc(extern_kernel, args)
        operator = extern_kernel.op_overload
        in_place = isinstance(operator, torch._ops.OpOverload) and (
            torch.Tag.inplace_view in operator.tags
        )
        if not in_place:
            self._lay_out(extern_kernel)

    def generate_c_shim_fallback_kernel(
        self, fallback_kernel: ir.FallbackKernel, args: list[str]
    ) -> None:
        """The call of a kernel with several results."""
        super().generate_c_shim_fallback_kernel(fallback_kernel, args)
        for output in fallback_kernel.outputs:
            if isinstance(output, ir.MultiOutput):
                self._lay_out(output)

    def _lay_out(self, result: ir.ExternKernel) -> None:
        if isinstance(result.layout, ir.Layout):
            write: Callable[[str], None] = self.writeline
            sizes = self.codegen_shape_tuple(result.get_size())
            strides = self.codegen_shape_tuple(result.get_stride())
            write(f'lay_out({result.get_name()}, {sizes}, {strides}, "{result.get_op_name()}");')

    def _codegen_assert_size_stride(
        self, code: Any, name: str, size: str, stride: str, op_name: str
    ) -> None:
        """Torch's optional comparison; results of kernels need none any more."""
        if not name.startswith("buf"):
            super()._codegen_assert_size_stride(code, name, size, stride, op_name)

    def _generate_scatter_fallback(self, *args: Any, **keywords: Any) -> None:
        with self._checking():
            super()._generate_scatter_fallback(*args, **keywords)  # type: ignore[no-untyped-call]

    def _generate_index_put_fallback(self, *args: Any, **keywords: Any) -> None:
        with self._checking():
            super()._generate_index_put_fallback(*args, **keywords)  # type: ignore[no-untyped-call]

    @contextmanager
    def _checking(self) -> Iterator[None]:
        """Let the one call that is written inside have its error code checked."""
        write: Callable[[str], None] = self.writeline

        def checked(call: str) -> None:
            write(f"AOTI_TORCH_ERROR_CODE_CHECK({call.removesuffix(';')});")

        with self.set_writeline(self.wrapper_call, checked):
            yield
