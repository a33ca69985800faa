"""Wrappers for Metal taken apart: shaders out, every call checked, and nothing guessed."""

from __future__ import annotations

import hashlib
import re

import pytest

from transforms.lowering.metal_wrapper import split_wrapper
from zoo.errors import LoweringError

PATH = "programs/main/kernels.metal"


def _shader(number: int) -> str:
    return (
        f'\nconst char* mps_lib_{number}_source = (R"MTL(\n'
        "    #include <c10/metal/utils.h>\n#include <c10/metal/reduction_utils.h>\n"
        "    kernel void generated_kernel(\n        device float* out\n    ) {\n"
        f"        out[0] = {number};\n    }}\n"
        ')MTL");\n'
    )


def _getter(number: int) -> str:
    return (
        f"AOTIMetalKernelFunctionHandle get_mps_lib_{number}_handle() {{\n"
        "    static auto kernel_handle = []() {\n"
        f"        aoti_torch_mps_create_shader_library(mps_lib_{number}_source, &lib_handle);\n"
        '        aoti_torch_mps_get_kernel_function(lib_handle, "generated_kernel", &kern);\n'
        "    }();\n    return kernel_handle.first;\n}\n"
    )


def _launch(number: int) -> str:
    return (
        f"    auto mps_lib_{number}_lambda_0 = [&](AOTIMetalKernelFunctionHandle handle) {{\n"
        "        aoti_torch_mps_start_encoding(handle);\n"
        "        aoti_torch_mps_set_arg_tensor(handle, 0, buf0);\n"
        "        aoti_torch_mps_dispatch_single(handle, static_cast<uint64_t>(4L));\n    };\n"
        "    std::function<void(AOTIMetalKernelFunctionHandle)> "
        f"w_{number} = mps_lib_{number}_lambda_0;\n"
        f"    aoti_torch_mps_run_command_block(get_mps_lib_{number}_handle(), "
        f"aoti_torch_mps_shared_callback, &w_{number});\n"
    )


def wrapper(numbers: tuple[int, ...] = (0, 1)) -> str:
    """The skeleton of what Inductor writes."""
    return "".join(
        [
            "#include <torch/csrc/inductor/aoti_include/mps.h>\n",
            "#include <torch/csrc/inductor/aoti_torch/c/shim_mps.h>\n",
            "#include <torch/csrc/inductor/aoti_runtime/interface.h>\n",
            "#include <ATen/native/mps/MetalShaderLibrary.h>\n",
            *map(_shader, numbers),
            *(f"    MTLFunction_t mps_lib_{n}{{nullptr}};\n" for n in numbers),
            *map(_getter, numbers),
            "    static constexpr int64_t int_array_0[] = {2L, 32LL};\n",
            "    aoti_torch_clone_preserve_strides(arg0_1, &arg0_1_aligned);\n",
            *map(_launch, numbers),
        ]
    )


def test_shaders_leave_the_wrapper_under_names_of_their_own() -> None:
    """Each kernel once, without the shared headers; the wrapper names path, hash and kernels."""
    code = split_wrapper(wrapper(), "main", PATH)
    assert code.kernels == ("main_mps_lib_0", "main_mps_lib_1")
    assert re.findall(r"kernel void (\w+)\(", code.shaders) == list(code.kernels)
    assert "#include" not in code.shaders
    assert "out[0] = 1;" in code.shaders
    digest = hashlib.sha256(code.shaders.encode()).hexdigest()
    assert f'"menagerie:{PATH}:{digest}"' in code.wrapper
    for name in code.kernels:
        assert f'"{name}"' in code.wrapper


def test_every_call_is_checked() -> None:
    """No statement of the wrapper drops a shim's error code, and none hands out a std::function."""
    code = split_wrapper(wrapper(), "main", PATH)
    assert not re.search(
        r"^ +aoti_torch_(mps_\w+|clone_preserve_strides)\(", _body(code.wrapper), re.MULTILINE
    )
    assert "run_kernel(get_mps_lib_1_handle(), mps_lib_1_lambda_0);" in code.wrapper
    assert "shared_callback" not in code.wrapper


def test_integers_mean_int64_on_every_system() -> None:
    """`2L` is no int64_t on macOS, `2LL` none on Linux."""
    code = split_wrapper(wrapper(), "main", PATH)
    assert "{INT64_C(2), INT64_C(32)}" in code.wrapper


def test_both_hosts_give_the_same_source() -> None:
    """Inductor writes `L` on Linux and `LL` on a Mac: the rewritten wrapper is the same."""
    linux = split_wrapper(wrapper(), "main", PATH)
    mac = split_wrapper(re.sub(r"(\d)L\b", r"\1LL", wrapper()), "main", PATH)
    assert linux == mac
    assert linux.sha256 == hashlib.sha256(linux.wrapper.encode()).hexdigest()


def test_a_program_may_have_no_kernels() -> None:
    """Then nothing asks for shaders."""
    code = split_wrapper(wrapper(()), "main", PATH)
    assert code.shaders == ""
    assert code.kernels == ()
    assert "menagerie:" not in code.wrapper


@pytest.mark.parametrize(
    ("known", "changed"),
    [
        ("kernel void generated_kernel(", "kernel void another_name("),
        ("#include <c10/metal/utils.h>", '#include "other.h"'),
        ("return kernel_handle.first;", "return kernel_handle;"),
        ("get_mps_lib_1_handle() {", "get_mps_lib_2_handle() {"),
        ("aoti_torch/c/shim_mps.h", "aoti_torch/c/shim_metal.h"),
        ("aoti_torch_mps_shared_callback, &w_1", "aoti_torch_mps_shared_callback, w_1"),
        ("MTLFunction_t mps_lib_1{nullptr};", "MTLFunction_t mps_lib_1;"),
        ("<ATen/native/mps/MetalShaderLibrary.h>", "<ATen/native/mps/Shaders.h>"),
        ('mps_lib_1_source = (R"MTL(', 'mps_lib_1_source = (R"MTL('.replace("(R", "make(R")),
    ],
)
def test_a_change_of_torch_is_said_aloud(known: str, changed: str) -> None:
    """Whatever is not as the pinned torch writes it is refused, never half rewritten."""
    assert known in wrapper()
    with pytest.raises(LoweringError, match="not built as it was"):
        split_wrapper(wrapper().replace(known, changed), "main", PATH)


def _body(text: str) -> str:
    """What follows our own inserted C++."""
    return text[text.index("#include <torch/csrc/inductor/aoti_runtime/interface.h>") :]
