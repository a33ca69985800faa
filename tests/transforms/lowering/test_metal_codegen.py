"""What Inductor writes for Metal: shaders apart, every call checked, and nothing guessed."""

from __future__ import annotations

import hashlib
import inspect
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from transforms.lowering import metal
from transforms.lowering.metal_codegen import MetalScheduling, MetalWrapper, metal_code
from zoo.errors import LoweringError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.export import ExportedProgram

    from transforms.lowering.inductor import GeneratedCode
    from transforms.lowering.metal_codegen import MetalCode

PATH = "programs/main/kernels.metal"


@pytest.fixture(scope="module")
def generated(small: ExportedProgram) -> GeneratedCode:
    """What Inductor writes for a program of several kernels."""
    return metal._generate("main", small)


@pytest.fixture(scope="module")
def code(generated: GeneratedCode) -> MetalCode:
    """The same, ready to compile."""
    return metal_code(generated.wrapper, generated.shaders, "main", PATH)


def test_shaders_are_beside_the_wrapper_under_names_of_their_own(code: MetalCode) -> None:
    """Each kernel once, without the shared headers; the wrapper names path, hash and kernels."""
    assert code.kernels[:2] == ("main_mps_lib_0", "main_mps_lib_1")
    assert re.findall(r"kernel void (\w+)\(", code.shaders) == list(code.kernels)
    assert "#include" not in code.shaders
    digest = hashlib.sha256(code.shaders.encode()).hexdigest()
    assert f'"menagerie:{PATH}:{digest}"' in code.wrapper
    for name in code.kernels:
        assert f'"{name}"' in code.wrapper
    assert code.sha256 == hashlib.sha256(code.wrapper.encode()).hexdigest()


def test_equal_kernels_are_one(generated: GeneratedCode) -> None:
    """Two layers with the same work share a shader."""
    assert len(set(generated.shaders.values())) == len(generated.shaders)
    twice = torch.export.export(_Twice(), (torch.randn(4, 4),)).run_decompositions({})
    code = metal._generate("main", twice)
    assert len(code.shaders) == 1
    assert code.wrapper.count("run_kernel(get_main_mps_lib_0_handle()") == 2


class _Twice(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.sigmoid() @ x).sigmoid()


def test_every_call_is_checked(code: MetalCode) -> None:
    """No statement of the wrapper drops a shim's error code, and none hands out a std::function."""
    body = code.wrapper[code.wrapper.index("using AOTInductorModelKernels") :]
    lines = re.findall(r"^.*\baoti_torch_mps_\w+\(.*$", body, re.MULTILINE)
    calls = [line for line in lines if not line.strip().startswith("extern AOTITorchError")]
    assert len(calls) > 4 * len(code.kernels)
    assert all("AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_mps_" in line for line in calls)
    assert "std::function" not in body
    # A copied input's call is between lines of torch's own; a macro checks it.
    assert "aoti_torch_clone_preserve_strides(" in body
    assert "#define aoti_torch_clone_preserve_strides(...)" in code.wrapper


def test_integers_mean_int64_on_every_system(generated: GeneratedCode, code: MetalCode) -> None:
    """`2L` is no int64_t on macOS, `2LL` none on Linux: both come out as one text."""
    assert re.search(r"std::array<int64_t, 2>\{\dL, \dL\}", generated.wrapper)
    assert not re.search(r"\b\d+LL?\b", code.wrapper)
    of_a_mac = re.sub(r"\b(\d+)L\b", r"\1LL", generated.wrapper)
    assert metal_code(of_a_mac, generated.shaders, "main", PATH) == code


def test_a_program_may_have_no_kernels() -> None:
    """Then nothing asks for shaders."""
    code = metal_code("int main() {}\n", {}, "main", PATH)
    assert code.shaders == ""
    assert code.kernels == ()
    assert "menagerie:" not in code.wrapper


@pytest.mark.parametrize(
    ("known", "changed"),
    [
        ("kernel void generated_kernel(", "kernel void another_name("),
        ('(R"MTL(', 'make("MTL('),
        (')MTL");', ')MTL"));'),
        ("kernel void", '#include "other.h"\nkernel void'),
    ],
)
def test_a_shader_written_in_another_way_is_refused(
    generated: GeneratedCode, known: str, changed: str
) -> None:
    """A kernel that we would not understand is an error, never half of one."""
    shaders = {name: text.replace(known, changed) for name, text in generated.shaders.items()}
    assert shaders != generated.shaders
    with pytest.raises(LoweringError, match="not built as it was"):
        metal_code(generated.wrapper, shaders, "main", PATH)


@pytest.mark.parametrize(
    "left",
    [
        'const char* s = (R"MTL(kernel)MTL");',
        'aoti_torch_mps_get_kernel_function(lib, "generated_kernel", &kern);',
        "aoti_torch_mps_run_command_block(f, aoti_torch_mps_shared_callback, &w);",
        "MTLFunction_t mps_lib_0{nullptr};",
        "#include <ATen/native/mps/MetalShaderLibrary.h>",
    ],
)
def test_a_way_past_our_classes_is_an_error(generated: GeneratedCode, left: str) -> None:
    """Whatever torch wrote without asking the methods that we replace is refused."""
    with pytest.raises(LoweringError, match="not built as it was"):
        metal_code(generated.wrapper + left, generated.shaders, "main", PATH)


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        (MetalWrapper.__mro__[2].write_mps_kernel_call, ["self", "name", "call_args"]),
        (MetalWrapper.__mro__[2].codegen_additional_funcs, ["self"]),
        (MetalWrapper.__mro__[2].write_header, ["self"]),
        (MetalScheduling.__base__.define_kernel, ["self", "src_code", "node_schedule", "kernel"]),
        (MetalScheduling.__base__.kernel_type.codegen_kernel, ["self", "name"]),
    ],
)
def test_torch_has_the_methods_that_we_replace(
    method: Callable[..., Any], parameters: list[str]
) -> None:
    """Each under its name and with its parameters."""
    assert list(inspect.signature(method).parameters) == parameters
