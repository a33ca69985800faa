"""Results of fallback kernels are laid out as the code around them counts on; no error is lost."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch._inductor.codegen import common
from torch._inductor.codegen.cpp import CppKernelProxy, CppScheduling, KernelGroup
from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
from torch._inductor.utils import run_and_get_code
from torch.nn import functional as F

from transforms.lowering.cpu import BACKEND
from transforms.lowering.inductor import generate_code
from zoo.errors import LoweringError

if TYPE_CHECKING:
    from collections.abc import Callable

_OPTIONS: dict[str, object] = {
    "aot_inductor.package": True,
    "cpp.vec_isa_ok": True,
    "cpp.simdlen": 256,
    "aot_inductor.link_libtorch": False,
}


class _Fallbacks(nn.Module):
    """Kernels with one result, with several, and the two kinds that torch calls unchecked."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3)

    def forward(
        self, x: torch.Tensor, index: torch.Tensor, scores: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        mixed = F.scaled_dot_product_attention(x, x, x)
        product = scores.scatter_reduce(0, index[:, None].expand(4, 4), scores, "prod")
        masked = scores.index_put((index > 0,), scores[0])  # a boolean index is left to a kernel
        return self.conv(mixed), product, masked


@pytest.fixture(scope="module")
def wrapper() -> str:
    """The wrapper's text."""
    inputs = (torch.randn(1, 4, 8, 8), torch.tensor([0, 1, 1, 3]), torch.randn(4, 4))
    program = torch.export.export(_Fallbacks().eval(), inputs).run_decompositions({})
    return generate_code(program, _OPTIONS, BACKEND).wrapper


def test_every_result_is_laid_out(wrapper: str) -> None:
    """Behind the call that makes it, by the sizes and strides that were compiled for."""
    calls = re.findall(r"aoti_torch_cpu_\w+\(.*\)", wrapper)
    made = re.findall(r"&(buf\d+)_handle\b", " ".join(calls))
    laid_out = re.findall(r"^ *lay_out\((buf\d+), \{[^}]+\}, \{[^}]+\}, \"", wrapper, re.MULTILINE)
    assert len(made) >= 3  # attention has two, the convolution one
    assert set(made) == set(laid_out)
    assert "assert_size_stride(" not in wrapper


def test_no_error_code_is_dropped(wrapper: str) -> None:
    """No call of a kernel is a statement by itself."""
    body = wrapper[wrapper.index("AOTInductorModel::run_impl(") :]
    calls = re.findall(r"^.*\baoti_torch_(?:cpu_\w+|index_put_out)\(.*$", body, re.MULTILINE)
    assert any("aoti_torch_cpu_scatter_reduce_two_out(" in line for line in calls)
    assert any("aoti_torch_index_put_out(" in line for line in calls)
    assert all("AOTI_TORCH_ERROR_CODE_CHECK(" in line for line in calls)


def test_what_the_user_compiles_is_torchs_own() -> None:
    """While code is generated our classes are registered; before, behind, and after an error not.

    A look-up with checks would have our C++ in it if they were.
    """

    class Lookup(nn.Module):
        def forward(self, table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            return table[ids] * 2

    inputs = (torch.randn(50, 8), torch.tensor([3, 49, 0]))
    common.init_backend_registration()
    before = dict(common.device_codegens)
    program = torch.export.export(Lookup(), inputs)
    assert "LoopFault" in generate_code(program, _OPTIONS, BACKEND).kernels
    assert common.device_codegens == before

    with pytest.raises(LoweringError):
        generate_code(program, {"no.such.option": True}, BACKEND)
    assert common.device_codegens == before

    compiled = torch.compile(Lookup())
    result, [code] = run_and_get_code(compiled, *inputs)
    torch.testing.assert_close(result, Lookup()(*inputs))
    assert "cpp_fused" in code
    assert "LoopFault" not in code


_ASSERTION = ["code", "name", "size", "stride", "op_name"]
_INDEX_PUT = ["kernel", "x", "indices", "values", "accumulate"]


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        (CppWrapperCpu.generate_c_shim_extern_kernel_alloc, ["extern_kernel", "args"]),
        (CppWrapperCpu.generate_c_shim_fallback_kernel, ["fallback_kernel", "args"]),
        (CppWrapperCpu._codegen_assert_size_stride, _ASSERTION),
        (CppWrapperCpu._generate_index_put_fallback, _INDEX_PUT),
        (CppWrapperCpu.set_writeline, ["target", "writeline"]),
        (CppWrapperCpu.write_header, []),
        (KernelGroup.codegen_group, ["name"]),
        (CppKernelProxy.gen_body, ["code"]),
        (CppScheduling.reset_kernel_group, []),
    ],
)
def test_torch_has_the_methods_that_we_replace(
    method: Callable[..., Any], parameters: list[str]
) -> None:
    """Each under its name and with its parameters."""
    assert list(inspect.signature(method).parameters) == ["self", *parameters]
    assert issubclass(CppScheduling.kernel_proxy_cls, CppKernelProxy)
