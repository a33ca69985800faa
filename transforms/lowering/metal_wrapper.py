"""Takes Inductor's wrapper for Metal apart: C++ to compile here, shaders for the device."""

from __future__ import annotations

import hashlib
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

from transforms.lowering.conform import conform_results
from zoo.errors import LoweringError

__all__ = ["SHADER_SCHEME", "MetalCode", "split_wrapper"]

# What the wrapper calls its shaders when it asks the runtime for them; see FORMAT.md, rule 10.
SHADER_SCHEME = "menagerie"

_SHADER = re.compile(r'\n *const char\* (\w+)_source = \(R"MTL\(\n?(.*?)\)MTL"\);', re.DOTALL)
_INCLUDE = re.compile(r"^\s*#include <c10/metal/\w+\.h>\s*$\n?", re.MULTILINE)
_KERNEL_NAME = re.compile(r"\bkernel void generated_kernel\(")

_GETTER = re.compile(
    r"AOTIMetalKernelFunctionHandle get_(\w+)_handle\(\) \{\n"
    r".*?\n    return kernel_handle\.first;\n\}",
    re.DOTALL,
)
_LAUNCH = re.compile(
    r"std::function<void\(AOTIMetalKernelFunctionHandle\)> (\w+) = (\w+);\n *"
    r"aoti_torch_mps_run_command_block\("
    r"(get_\w+_handle\(\)), aoti_torch_mps_shared_callback, &\1\);"
)
# Statements whose error code Inductor's wrapper drops.
_UNCHECKED = re.compile(
    r"^( +)(aoti_torch_(?:mps_\w+|clone_preserve_strides)\(.*\));$", re.MULTILINE
)
_MEMBER = re.compile(r"^ *MTLFunction_t \w+\{nullptr\};\n", re.MULTILINE)
_LITERAL = re.compile(r"\b(\d+)LL?\b")

_SHIM_INCLUDE = "#include <torch/csrc/inductor/aoti_torch/c/shim_mps.h>\n"
_ATEN_INCLUDE = "#include <ATen/native/mps/MetalShaderLibrary.h>\n"
# Whatever of these is left shows that torch writes its wrapper in another way than we know.
_FOREIGN = ("MTL(", "generated_kernel", "shared_callback", "MTLFunction_t", "ATen/")


@dataclass(frozen=True)
class MetalCode:
    """A program's wrapper, which both its libraries are compiled from, and its shaders.

    `shaders` is empty for a program without generated kernels.
    """

    wrapper: str
    shaders: str
    kernels: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """Of the wrapper."""
        return hashlib.sha256(self.wrapper.encode()).hexdigest()


def split_wrapper(wrapper: str, program: str, shaders_path: str) -> MetalCode:
    """Move the shaders out of a wrapper and let it ask the runtime for them, each call checked.

    Args:
        wrapper: the C++ that Inductor wrote under `inductor.metal_on_any_host`.
        program: the program's name, from which its kernels get theirs.
        shaders_path: where the bundle will hold the shaders.

    Raises:
        LoweringError: if the wrapper is not built as torch's pinned version builds it.
    """
    place = f"program {program}"
    sources = dict(_SHADER.findall(wrapper))
    names = {library: f"{program}_{library}" for library in sources}
    shaders = "\n".join(_shader(place, names[k], text) for k, text in sources.items())
    wrapper = _getters(place, _SHADER.sub("", wrapper), names)
    wrapper = _LAUNCH.sub(r"run_kernel(\3, \2);", wrapper)
    wrapper = _UNCHECKED.sub(r"\1AOTI_TORCH_ERROR_CODE_CHECK(\2);", wrapper)
    wrapper = _MEMBER.sub("", wrapper).replace(_ATEN_INCLUDE, "")
    wrapper = _LITERAL.sub(r"INT64_C(\1)", wrapper)  # int64_t is another type on macOS
    wrapper = conform_results(_with_header(place, wrapper, shaders, shaders_path))
    if left := [word for word in _FOREIGN if word in wrapper]:
        raise _unknown(place, f"{left[0]!r} where none was expected")
    return MetalCode(wrapper, shaders, tuple(names[k] for k in sources))


def _shader(place: str, name: str, text: str) -> str:
    """One kernel under its own name, without the headers that all share."""
    bare, found = _KERNEL_NAME.subn(f"kernel void {name}(", _INCLUDE.sub("", text))
    if found != 1 or "#include" in bare:
        raise _unknown(place, f"shader {name} is not one kernel without headers")
    return textwrap.dedent(bare).strip() + "\n"


def _getters(place: str, wrapper: str, names: dict[str, str]) -> str:
    """Replace the functions that make a kernel's handle by ones that take it from our library."""
    wanted = set(_GETTER.findall(wrapper))
    if wanted != set(names):
        raise _unknown(place, f"kernels {sorted(wanted ^ set(names))} have no shader, or no use")

    def getter(match: re.Match[str]) -> str:
        return (
            f"AOTIMetalKernelFunctionHandle get_{match[1]}_handle() {{\n"
            f'    static const auto handle = program_shaders().kernel("{names[match[1]]}");\n'
            "    return handle;\n}"
        )

    return _GETTER.sub(getter, wrapper)


def _with_header(place: str, wrapper: str, shaders: str, path: str) -> str:
    """Insert our own C++ and the name under which the runtime finds the shaders."""
    if wrapper.count(_SHIM_INCLUDE) != 1:
        raise _unknown(place, "it does not include the shims of mps once")
    own = Path(__file__).with_suffix(".h").read_text().replace("#pragma once\n", "")
    if shaders:
        digest = hashlib.sha256(shaders.encode()).hexdigest()
        own += (
            "\nnamespace torch::aot_inductor {\n"
            "static const ProgramShaders& program_shaders() {\n"
            f'    static const ProgramShaders shaders("{SHADER_SCHEME}:{path}:{digest}");\n'
            "    return shaders;\n}\n"
            "}  // namespace torch::aot_inductor\n"
        )
    return wrapper.replace(_SHIM_INCLUDE, _SHIM_INCLUDE + own)


def _unknown(place: str, fact: str) -> LoweringError:
    return LoweringError(
        place,
        f"Inductor's wrapper for Metal is not built as it was: {fact}",
        "Use the torch that pyproject.toml pins, or adapt transforms/lowering/metal_wrapper.py",
    )
