"""Lower a program to a shared library for the CPU shim runtime, without its weights."""

from __future__ import annotations

import functools
import platform
import time
from pathlib import Path

import torch
from torch.export import ExportedProgram

from menagerie.figures import count
from menagerie.library import library_path
from transforms.graph.guards import dynamic_sizes_kept
from transforms.lowering.coverage import check_kernels, check_library, own_shims
from transforms.lowering.cpp_codegen import (
    FAULTS,
    LEAN_LIBRARY,
    CheckedScheduling,
    TimedWrapper,
    interface,
    not_the_pinned,
    wrapper_prelude,
)
from transforms.lowering.inductor import Backend, generate_code
from transforms.lowering.result import LoweredProgram
from transforms.lowering.toolchain import Compiler, Source, find_compiler, link_model_library
from zoo.errors import LoweringError
from zoo.progress import report_step
from zoo.records import LoweringRecord

BACKEND = Backend("cpu", CheckedScheduling, TimedWrapper)
_HEADER = "torch/csrc/inductor/cpp_prefix.h"
_INCLUDED = f"#include <{_HEADER}>\n"
# Part of that header: blocks of products, for templates that are never used.
_UNUSED = "inline std::tuple<std::shared_ptr<int64_t[]>, int> _get_factors(", "struct amx_tilecfg {"
# Part of that header: squares of a mean above 1e19, times 0 for an empty part, would be inf * 0.
_SQUARES = "delta * delta * a_weight * wb_over_w", "(delta * wb_over_w) * (delta * a_weight)"

_OPTIONS: dict[str, object] = {
    # The runtime packs weights at load for the machine it runs on (infra/adr/0002).
    "cpp.weight_prepack": False,
    # Plan parallelism for eight threads instead of this machine's count; run with any number.
    "cpp.threads": 8,
    "cpp.dynamic_threads": True,
    # Use Welford's algorithm for rows of any length: equal numbers have a variance of exactly 0.
    "cpp.use_two_step_variance_threshold": 0,
    # Take the vector width from the baseline below instead of probing this machine.
    "cpp.vec_isa_ok": True,
}

# Inductor's own choices: keep IEEE results (no contraction, no finite-math) at full optimisation.
# Integers wrap around as in eager; otherwise a compiler may assume that n + 1 > n.
_FLAGS = (
    "-std=c++20", "-O3", "-DNDEBUG", "-fPIC", "-fopenmp", "-fvisibility=hidden", "-w",
    "-fno-trapping-math", "-fno-math-errno", "-ffp-contract=off", "-fno-tree-loop-vectorize",
    "-fwrapv", "-DTORCH_INDUCTOR_CPP_WRAPPER", "-DSTANDALONE_TORCH_HEADER",
    "-DC10_USING_CUSTOM_GENERATED_MACROS",
)  # fmt: skip


# Torch's macros for the instruction set that its vector headers may use.
_MACROS = ("-DCPU_CAPABILITY={0}", "-DCPU_CAPABILITY_{0}", "-DHAVE_{0}_CPU_DEFINITION")
# The oldest supported processors: vector bits, instruction set, and another compiler flag.
_BASELINES = {
    "x86_64": (256, "AVX2", "-march=x86-64-v3"),
    "arm64": (128, "NEON", "-DAT_BUILD_ARM_VEC256_WITH_SLEEF"),
}
_BASELINES["aarch64"] = _BASELINES["arm64"]


@functools.cache
def _prelude() -> str:
    """Return torch's kernel header, without what a compiler would instantiate for every file.

    That takes a quarter of the compile time of a small model's kernels. Variances are corrected.
    """
    [folder] = torch.__path__
    text = Path(folder, "include", _HEADER).read_text()
    start, end = map(text.find, _UNUSED)
    if not 0 < start < end:
        raise not_the_pinned(_HEADER, f"{_UNUSED[0]}...) is not before {_UNUSED[1]}")
    if _SQUARES[0] not in text:
        raise not_the_pinned(_HEADER, f"{_SQUARES[0]} is not in it")
    return LEAN_LIBRARY + (text[:start] + text[end:]).replace(*_SQUARES)


def lower(
    program: ExportedProgram, library: Path, *, name: str = "main", compiler: Compiler | None = None
) -> LoweredProgram:
    """Compile one program to a library in an existing folder; see `Target.lower`."""
    started = time.perf_counter()
    place = f"program {name}"
    machine = platform.machine()
    if (baseline := _BASELINES.get(machine)) is None:
        fact = f"there is no baseline for {machine}"
        raise LoweringError("cpu", fact, "x86_64 and arm64 are known")
    vector_bits, capability, flag = baseline
    with dynamic_sizes_kept(place, program):
        options = _OPTIONS | {
            "cpp.simdlen": vector_bits,
            "aot_inductor.custom_ops_to_c_shims": own_shims(program, "cpu"),
        }
        code = generate_code(program, options, BACKEND)
    check_kernels(place, code.kernel_uses, "cpu")
    report_step(f"{place}: {count(code.generated_kernels, 'kernel')} generated", 0.3)
    flags = (*_FLAGS, *(macro.format(capability) for macro in _MACROS), flag)
    sources = [
        Source("kernels", FAULTS + code.kernels.replace(_INCLUDED, ""), flags, _prelude()),
        # The wrapper runs once per call and only calls: -O1 compiles it three times as fast.
        Source("wrapper", code.wrapper, (*flags, "-O1"), prelude=wrapper_prelude("cpu")),
        Source("interface", interface("cpu"), (*flags, "-O1"), kept=True),
    ]
    # The shim functions have libtorch's names; naming their library makes a model find ours even
    # if both are loaded. It is loaded into the process before the model.
    link_model_library(
        compiler or find_compiler(), sources, library, library_path(), ["libgomp.so.1"]
    )
    return LoweredProgram(
        library=library,
        constants=code.constants,
        record=LoweringRecord(
            program=name,
            library_bytes=library.stat().st_size,
            symbols=check_library(place, library, "cpu"),
            fallback_kernels=tuple(sorted(code.kernel_uses)),
            generated_kernels=code.generated_kernels,
            seconds=time.perf_counter() - started,
        ),
    )
