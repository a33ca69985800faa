"""Lower a program to Metal on any host: a Mach-O library, shaders, and a library for emulation."""

from __future__ import annotations

import functools
import platform
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from menagerie.figures import count
from menagerie.format.bundle_manifest import Role
from menagerie.paths import built
from menagerie.shims import supported_symbols
from transforms.graph.aliasing import nodes_of
from transforms.graph.guards import dynamic_sizes_kept
from transforms.graph.record import origin
from transforms.lowering.coverage import check_kernels, check_library, own_shims
from transforms.lowering.cpp_codegen import interface, wrapper_prelude
from transforms.lowering.inductor import Backend, GeneratedCode, generate_code, metal_on_any_host
from transforms.lowering.metal_codegen import MetalCode, MetalScheduling, MetalWrapper, metal_code
from transforms.lowering.result import LoweredFile, LoweredProgram, host_requirements
from transforms.lowering.toolchain import (
    Source,
    find_compiler,
    link_mach_library,
    link_model_library,
    linked_for_macos,
)
from transforms.passes.metal.move_to_device import MoveToDevice
from zoo.errors import LoweringError
from zoo.progress import progress_to, report_step
from zoo.records import LoweringRecord

_ONCE = "the first conversion for Metal compiles libc++ for macOS, which takes some minutes, once"
_OPTIONS: dict[str, object] = {
    # If on, it makes convolutions channels-last and adds a transposing kernel before most of them.
    "layout_optimization": False,
    # In torch's Welford for Metal, each thread of a group reads all values one after another: a
    # layer norm of 384 reads 384 x 384 per row. A mean and then a variance are two quick sums.
    "mtia.disable_welford_reduction": True,
    # A kernel takes 31 buffers (Metal Feature Set Tables, "Buffer argument table"); each dynamic
    # size takes one of them, and one may be for messages.
    "max_fusion_unique_io_buffers": 24,
}

_FLAGS = (
    "-std=c++20", "-Os", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", "-w", "-DUSE_MPS",
    "-DTORCH_INDUCTOR_CPP_WRAPPER", "-DSTANDALONE_TORCH_HEADER",
    "-DC10_USING_CUSTOM_GENERATED_MACROS",
)  # fmt: skip
_RUNTIME = "libmenagerie_metal.so"
_STUB = Source("stub", "", ("-fPIC",), kept=True)

_FOREIGN_DTYPES = (torch.float64, torch.complex64, torch.complex128)
_HOST_FLAGS = ("-std=c++20", "-O1", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", "-w")


def emulation_name() -> str | None:
    """Return the name of the emulated device's library; None if there is no such device."""
    if platform.system() != "Linux":
        return None
    return f"model.linux-{platform.machine()}.so"


def lower(program: ExportedProgram, folder: Path, *, name: str = "main") -> LoweredProgram:
    """Compile one program, on the CPU, to `programs/<name>/`; see `Target.lower`."""
    started = time.perf_counter()
    place = f"program {name}"
    own = folder / "programs" / name
    own.mkdir(parents=True, exist_ok=True)
    shaders = own / "kernels.metal"
    code = _generate(name, program)
    path = shaders.relative_to(folder).as_posix()
    metal = metal_code(code.wrapper, code.shaders, name, path)
    check_kernels(place, code.kernel_uses, "metal")
    report_step(f"{place}: {count(len(metal.kernels), 'kernel')} generated", 0.3)
    files = {}
    if metal.shaders:
        shaders.write_text(metal.shaders)
        files[Role.SHADERS] = LoweredFile(shaders)
    mark = linked_for_macos()
    if not mark.exists() and platform.system() != "Darwin":  # otherwise it would seem to hang
        report_step(_ONCE, 0.3, begins=True)
    with ThreadPoolExecutor(max_workers=1) as pool:
        emulated = pool.submit(_emulation, metal, own)
        library = own / "model.dylib"
        link_mach_library(_sources(metal), library, "metal")
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
        if (emulation := emulated.result()) is not None:
            files[Role.EMULATION] = LoweredFile(emulation, metal.sha256, host_requirements())
    # Both are compiled from one source, and `nm` reads only this host's own libraries.
    symbols = check_library(place, emulation or library, "metal")
    computing = supported_symbols("metal", computing=True)
    return LoweredProgram(
        library=library,
        constants=code.constants,
        record=LoweringRecord(
            program=name,
            library_bytes=library.stat().st_size,
            symbols=symbols,
            fallback_kernels=tuple(s for s in symbols if s in computing),
            generated_kernels=len(metal.kernels),
            seconds=time.perf_counter() - started,
        ),
        files=files,
    )


def dispatches(program: ExportedProgram, name: str) -> dict[str, int]:
    """Count the kernels that generated code launches, by the library's call or `generated`.

    Kernels in a loop, and in each branch, count once; a product or convolution whose terms are
    split launches a second kernel. Raise LoweringError if the program cannot be lowered.
    """
    _, _, run = _generate(name, program).wrapper.rpartition("run_impl(")
    computing = supported_symbols("metal", computing=True)
    found = Counter[str]()
    for called in re.findall(r"\b(aoti_torch_\w+)\(", run):
        if called in computing:
            found[called.removeprefix("aoti_torch_").removeprefix("mps_")] += 1
        elif called.startswith("aoti_torch_mps_dispatch"):
            found["generated"] += 1
    return dict(found.most_common())


def _generate(name: str, program: ExportedProgram) -> GeneratedCode:
    place = f"program {name}"
    given = program.graph_signature.user_inputs
    inputs = program.graph.find_nodes(op="placeholder")
    if foreign := _foreign(place, (n for n in inputs if n.name in given and n.users)):
        raise foreign  # torch would read half of a number without axes
    backend = Backend("mps", MetalScheduling, MetalWrapper.of(name))
    provide_mps()
    with metal_on_any_host(), dynamic_sizes_kept(place, program):
        options = _OPTIONS | {"aot_inductor.custom_ops_to_c_shims": own_shims(program, "mps")}
        try:
            moved, _ = MoveToDevice()(program, place)
            code = generate_code(moved, options, backend)
        except LoweringError as error:
            raise _explained(place, program, error) from error
    if code.generated_kernels:
        loops = [origin(n) for n in nodes_of(program) if str(n.target) in {"scan", "map_impl"}]
        fact = f"{(*loops, 'a part of the program')[0]} would count on the CPU"
        raise LoweringError(place, fact, "Write it with while_loop, or convert for the CPU")
    return code


def _explained(place: str, program: ExportedProgram, error: LoweringError) -> LoweringError:
    """Return the error, or its cause if that is a dtype that Apple's GPUs lack."""
    cause = _foreign(place, program.graph.nodes)
    return cause or LoweringError(place, error.fact, error.next_step)


def _foreign(place: str, nodes: Iterable[Node]) -> LoweringError | None:
    """Return an error for the first node with a dtype that Apple's GPUs lack; None without any."""
    for node in nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.dtype in _FOREIGN_DTYPES:
            where = origin(node) if node.op == "call_function" else node.name
            fact = f"{where} is of {value.dtype}, which Metal does not know"
            return LoweringError(place, fact, "Let the model compute it in float32")
    return None


def _sources(metal: MetalCode) -> list[Source]:
    return [
        Source("wrapper", metal.wrapper, _FLAGS, prelude=wrapper_prelude("mps")),
        Source("interface", interface("mps"), _FLAGS, kept=True),
    ]


def _emulation(metal: MetalCode, folder: Path) -> Path | None:
    """Compile the same source for this host, linked to the runtime by name (see cpu.py)."""
    name = emulation_name()
    if name is None:
        return None
    library, compiler = folder / name, find_compiler()
    unheard = progress_to(lambda _: None)  # the other thread compiles the same headers
    with unheard, tempfile.TemporaryDirectory(prefix="menagerie-") as scratch:
        stub = Path(scratch) / _RUNTIME
        compiler.link_library([_STUB], stub, [f"-Wl,-soname,{_RUNTIME}"])
        link_model_library(compiler, _sources(metal), library, stub)
    return library


@functools.cache
def provide_mps() -> None:
    """Make the device `mps` available to tensors, for the rest of this process.

    On Linux the device uses host memory and computes on the CPU; a Mac has the real one. Raise
    LoweringError if the device cannot be compiled.
    """
    if torch.backends.mps.is_built():
        return
    text = built("lowering/mps_host.cpp").read_text()
    source = Source("device", text, _HOST_FLAGS, kept=True)
    torch_libraries = Path(torch.__file__).parent / "lib"
    flags = [f"-L{torch_libraries}", "-lc10", "-ltorch_cpu"]
    with tempfile.TemporaryDirectory(prefix="menagerie-") as folder:
        library = Path(folder) / "mps_host.so"
        find_compiler().link_library([source], library, flags)
        torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
