"""Have TorchInductor generate a program's C++, and keep it from compiling anything itself.

Subclasses of its code generators change what it writes (cpp_codegen.py, metal_codegen.py).
They are registered for a device by Inductor's own `register_backend_for_device`, in this module,
and only during code generation.

The rest uses private parts of TorchInductor, each listed here with its reason:

- `codecache.AotCodeCompiler.compile`: receives the finished wrapper and kernel sources.
- `GraphLowering.operations`, `.constants`, `.allocated_constant_name`,
  `.dynamo_flat_name_to_original_fqn`: show which fallback kernels the program uses and their
  origins, and which tensor is behind each constant of the wrapper.
- `fx_passes.fuse_attention._sfdp_init`: registers patterns of attention, which mistake a key with
  another permutation for a transposed one. They are left out, unless torch.compile registered them
  earlier in this process.
- `fx_passes.post_grad.same_meta`: drops a copy of a buffer that is written later.
- `fx_passes.post_grad.pass_patterns`: one writes a cumulative sum of a constant as a range, in
  another dtype than the program's (`pointless_cumsum_replacement`). It is left out.
- `UniformValueConstantFolder._add_peephole_patterns`: replaces `x * 0` by 0, even if x is NaN or
  infinite. It is left out.
- `graph.normalize_name` and `codegen.cpp_wrapper_cpu.normalize_name`: name a constant's variable in
  the wrapper like the model, e.g. `operator` or `buf0`. Our names begin with `constant_`.
- `CppWrapperCpu._write_aoti_interface_header`: writes AOTInductor's interface into each wrapper. It
  is compiled once instead (cpp_codegen.py).
- `GraphLowering.run_node`, `Scheduler._codegen`: raise errors that name no node of the graph.
- `GraphLowering.get_attr`: returns a constant without axes as a bare number, which has no views.
  If operators that are not pointwise read it, it becomes a tensor like any other.
- `torch.utils._pytree.treespec_dumps`: cannot write named tuples, and our runtime reads none.
- `torch.fx.experimental._config.backed_size_oblivious`, on: otherwise what is not decided for all
  sizes follows the example's, such as whether a pool with `ceil_mode` needs to round up.
- `codegen.cpp.stride_at_vec_range`: takes minutes for long indexes (`stride_in_range`).
- `codegen.common.DtypePropagationOpsHandler`: has one instance and sets it up at every use.
- `cpu_vec_isa.valid_vec_isa_list`: after one failure, such as a full disk, all later code would be
  scalar. `cpp.simdlen` sets the vector width instead.

One option is set for programs that keep state in buffers: `joint_graph_constant_folding` off. It
takes a buffer of one element, such as a count of calls, for a constant (torch's
`UniformValueConstantFolder._deduce_value`), and later reads return its first value. Another is set
for programs that compute halves: `emulate_precision_casts` on. Otherwise fused code computes in
float32 and rounds only at its end, and `floor(x * 1.1)` is another integer than in eager.

For Metal, on any host:

- `torch.mps.is_available`, `torch.backends.mps.is_available`: Inductor generates Metal code only
  if they report a device; on Linux `mps_host.cpp` provides one.
- `torch.backends.mps.get_core_count`: returns a fixed number, so all hosts generate the same code.
- `torch._inductor.utils.get_gpu_type`: keeps its first answer, which may be outdated.
- `utils.needs_fallback_due_to_atomic_add_limitations`: overlooks atomics that write four bytes.
- `codegen.mps._embed_headers`, replaced in metal_codegen.py: would put the flattened headers,
  150 KB, into every kernel. They are stored once per bundle instead.
- `torch.utils._cpp_embed_headers._embed_headers`: flattens them for that one copy.

`tests/transforms/lowering/test_inductor.py` fails with a clear message if torch changes one.
"""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import sympy
import torch
from torch._inductor import bounds, codecache, cpu_vec_isa, ir, lowering, scheduler, sizevars
from torch._inductor import graph as graph_module
from torch._inductor import utils as inductor_utils
from torch._inductor.codegen import common, cpp, cpp_wrapper_cpu
from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.dependencies import MemoryDep
from torch._inductor.fx_passes import fuse_attention
from torch._inductor.fx_passes.joint_graph import UniformValueConstantFolder as _Folder
from torch._inductor.fx_utils import get_node_storage
from torch._inductor.graph import GraphLowering
from torch._inductor.scheduler import BaseScheduling
from torch._inductor.utils import get_gpu_type, normalize_name
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.experimental import _config
from torch.utils import _cpp_embed_headers
from torch.utils import _pytree as pytree
from torch.utils._sympy.functions import Max, Min, Where
from torch.utils._sympy.value_ranges import ValueRanges

from menagerie.paths import built
from transforms.graph.aliasing import nodes_of
from transforms.graph.call_signature import state_of
from transforms.graph.guards import is_number_cached, plain_words, torch_unheard
from transforms.graph.record import origin
from transforms.graph.retrace import aot_export_module
from transforms.lowering.cpp_codegen import located, not_the_pinned, numbers_as_eager
from zoo.errors import LoweringError
from zoo.sources.context import first_line

aten = torch.ops.aten
_CUMSUM = "call_function", aten.cumsum.default
_SYMBOL = re.compile(r"\baoti_torch_\w+")
_LACKING = re.compile(r"\w+: \w+ does not implement ops\.(\w+)")
_PROXY = "aoti_torch_proxy_executor_call_function"

# Generate code alone, without weights, for a runtime that is not libtorch.
_ALWAYS = {
    "aot_inductor.package": True,
    "aot_inductor.package_constants_in_so": False,
    "aot_inductor.link_libtorch": False,
    "optimize_scatter_upon_const_tensor": False,  # compares positions, and checks no index
}
# Determines how reductions are split; the value of a smaller GPU.
_CORES = 16
# All headers that Inductor's Metal kernels may include, in the order of our header.
_METAL_HEADERS = ("utils", "reduction_utils", "special_math", "random", "atomic")
# Operations in an index. Up to here an answer takes tenths of a second; plain sums of products,
# whose strides are constant, have fewer.
_LONGEST = 100
_BENDS = Where, sympy.Abs


@dataclass(frozen=True)
class Backend:
    """The classes that write code for a device: subclasses of Inductor's own."""

    device: str
    scheduling: type[BaseScheduling]
    wrapper: type[CppWrapperCpu]

    @contextmanager
    def registered(self) -> Iterator[None]:
        """Make Inductor use them inside the block; `torch.compile` uses its own again after it."""
        common.init_backend_registration()
        with (
            patch.dict(common.device_codegens),
            patch.dict(common.custom_backend_passes),
            patch.dict(common.custom_backend_codegen_configs),
        ):
            common.register_backend_for_device(
                self.device, self.scheduling, PythonWrapperCodegen, self.wrapper
            )
            yield


@dataclass(frozen=True)
class GeneratedCode:
    """The code that Inductor wrote for one program.

    `kernel_uses` maps each fallback kernel (its shim symbol, or the operator's name if torch has no
    shim for it) to the locations in the model that need it.
    """

    wrapper: str
    kernels: str
    constants: dict[str, torch.Tensor]  # by the library's constant name (original FQN)
    kernel_uses: dict[str, tuple[str, ...]]
    generated_kernels: int
    shaders: dict[str, str]  # by kernel; only for Metal


class _Captured(BaseException):
    """The sources on their way out of Inductor; a BaseException, so that nothing catches it."""

    def __init__(self, code: GeneratedCode) -> None:
        super().__init__()
        self.code = code


def generate_code(
    program: ExportedProgram, options: Mapping[str, Any], backend: Backend
) -> GeneratedCode:
    """Generate code, without compiling it, by options with dotted names; or raise LoweringError."""
    arguments, keywords = program.example_inputs
    options = {**_ALWAYS, **options}
    if state_of(program):
        options["joint_graph_constant_folding"] = False
    if _makes_halves(program):
        options["emulate_precision_casts"] = True
    module = _with_old_values(program.module(check_guards=False))
    failed: list[str] = []  # locations in the model
    try:
        with (
            torch_unheard(),
            patch.object(codecache.AotCodeCompiler, "compile", _capture),
            patch.object(fuse_attention, "_sfdp_init", lambda *_: None),
            _passes_and_fusions(),
            patch.object(_Folder, "_add_peephole_patterns", lambda _: None),
            patch.object(graph_module, "normalize_name", _constant_name),
            patch.object(cpp_wrapper_cpu, "normalize_name", _constant_name),
            patch.object(cpp, "stride_at_vec_range", stride_in_range),
            patch.object(common, _DTYPES, lru_cache(getattr(common, _DTYPES))),
            patch.object(
                cpu_vec_isa, "valid_vec_isa_list", lambda: cpu_vec_isa.supported_vec_isa_list
            ),
            patch.object(pytree, "treespec_dumps", lambda _: ""),
            patch.object(_config, "backed_size_oblivious", new=True),
            patch.object(graph_module.GraphLowering, "get_attr", _constant_with_views),
            _noting(failed, graph_module.GraphLowering, "run_node", lambda _, node: [node]),
            _noting(failed, scheduler.Scheduler, "_codegen", _scheduled),
            is_number_cached(),
            numbers_as_eager(),
            backend.registered(),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # torch's own deprecations, of no use to the user
            torch._inductor.aot_compile(module, arguments, keywords, options=options)
    except _Captured as captured:
        return captured.code
    except Exception as error:
        where = f" at {failed[0]}" if failed else ""
        reason = _LACKING.sub(r"the target has no function \1", plain_words(first_line(error)))
        step = "Write it with other operators, or convert for another target" if failed else ""
        raise LoweringError("inductor", f"code generation failed{where}: {reason}", step) from error
    raise not_the_pinned("inductor", "torch no longer calls AotCodeCompiler.compile")


_least = sizevars.SizeVarAllocator.evaluate_min


def _smaller(sizes: sizevars.SizeVarAllocator, left: Any, right: Any) -> Any:
    """Return the smaller size; the host computes it if the ranges do not decide."""
    try:
        return _least(sizes, left, right)
    except TypeError:
        return Min(left, right)  # type: ignore[no-untyped-call]


def _larger(sizes: sizevars.SizeVarAllocator, left: Any, right: Any) -> Any:
    least = sizes.evaluate_min(left, right)
    if least in {left, right}:
        return right if least == left else left
    return Max(left, right)  # type: ignore[no-untyped-call]


_quotient = bounds.ValueRangeAnalysis.truncdiv


def _range_of_quotient(*operands: Any) -> Any:
    """Return the range of a quotient; unknown if both operands have unbounded ranges."""
    try:
        return _quotient(*operands)
    except TypeError:  # torch compares the result of infinity / infinity
        return ValueRanges.unknown()


_can_fuse = scheduler.Scheduler.fusable_weak_dep


def _reads_before_it_writes(owner: scheduler.Scheduler, dep: Any, reader: Any, writer: Any) -> bool:
    """Return whether a kernel may read a buffer and overwrite it: only at the same positions.

    Torch overlooks reads of the buffer after an earlier write, which have another name.
    """
    names = owner.mutation_real_name
    places = [w.index for w in writer.read_writes.writes if w.name == dep.mutating_buf]
    reads = [r for node in reader.get_nodes() for r in node.read_writes.reads]
    again = [r for r in reads if names.get(r.name) == names[dep.mutating_buf]]
    same = all(isinstance(r, MemoryDep) and [r.index] == places for r in again)
    return same and _can_fuse(owner, dep, reader, writer)


def _with_old_values(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Copy a buffer's old value before a write if it is returned, or stored in another buffer.

    Torch writes buffers one after another, so the second would receive the new value of the first.
    """
    graph = module.graph
    writes = graph.find_nodes(op="call_function", target=aten.copy_.default)
    written = _written(graph)
    for user in [*writes, graph.output_node()]:
        for value in user.all_input_nodes[user in writes :]:
            if get_node_storage(value) in written:
                with graph.inserting_before(writes[0]):
                    old = graph.call_function(aten.clone.default, (value,))
                old.meta = {**value.meta, "val": value.meta["val"].clone()}
                user.replace_input_with(value, old)
    module.recompile()
    return module


def _written(graph: torch.fx.Graph) -> set[int | None]:
    """Return the memory that is written: of buffers, and of all but the last values in them."""
    writes = graph.find_nodes(op="call_function", target=aten.copy_.default)
    ends = [(get_node_storage(node.args[0]), get_node_storage(node.args[1])) for node in writes]
    buffers = {buffer: buffer for buffer, _ in ends}
    for node in graph.nodes:
        # torch may compute these in the buffer's own memory.
        if node.args and re.search("index_|scatter|put", getattr(node.target, "__name__", "")):
            buffers[get_node_storage(node)] = buffers.get(get_node_storage(node.args[0]))
    return {v for v, buffer in buffers.items() if buffer and (buffer, v) not in ends} - {None}


@contextmanager
def _passes_and_fusions() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from a module that torch's own imports
        from torch._inductor import compile_fx
        from torch._inductor.fx_passes import post_grad
    has_same_meta = post_grad.same_meta

    def is_same(node: Node, source: Node) -> bool:
        storage = get_node_storage(source)
        copied = storage != get_node_storage(node) and storage in _written(node.graph)
        return bool(not copied and has_same_meta(node, source))

    with (
        patch.dict(post_grad.pass_patterns[1].patterns, {_CUMSUM: []}),
        patch.object(post_grad, "same_meta", is_same),
        patch.object(compile_fx, "aot_export_module", aot_export_module),
        patch.object(scheduler.Scheduler, "fusable_weak_dep", _reads_before_it_writes),
        patch.object(sizevars.SizeVarAllocator, "evaluate_min", _smaller),
        patch.object(sizevars.SizeVarAllocator, "evaluate_max", _larger),
        patch.object(bounds.ValueRangeAnalysis, "truncdiv", staticmethod(_range_of_quotient)),
    ):
        yield


def _makes_halves(program: ExportedProgram) -> bool:
    nodes = (node for node in nodes_of(program) if node.op == "call_function")
    values = (v for node in nodes for v in pytree.tree_leaves(node.meta.get("val")))
    return any(getattr(v, "dtype", None) in {torch.float16, torch.bfloat16} for v in values)


_constant = graph_module.GraphLowering.get_attr


def _constant_with_views(graph: GraphLowering, *given: Any) -> Any:
    found = _constant(graph, *given)
    tags = [getattr(user.target, "tags", ()) for user in graph.current_node.users]
    if not isinstance(found, ir.Constant) or all(torch.Tag.pointwise in each for each in tags):
        return found
    return lowering.tensor(found.value, dtype=found.dtype, device=found.device)


def _noting(
    sites: list[str], owner: type, method: str, nodes: Callable[..., Iterable[Node]]
) -> AbstractContextManager[object]:
    """Make a method of Inductor add the location in the model to `sites` when it raises."""
    inner = getattr(owner, method)

    def noting(*given: Any) -> Any:
        try:
            return inner(*given)
        except Exception:
            sites.extend(filter(None, [located(nodes(*given))]))
            raise

    return patch.object(owner, method, noting)


def _scheduled(owner: scheduler.Scheduler, _: object) -> list[Node]:
    kernels = owner.current_node.get_nodes() if owner.current_node else ()
    return [node for kernel in kernels if kernel.node for node in kernel.node.get_origins()]


@contextmanager
def metal_on_any_host() -> Iterator[None]:
    """Make Inductor generate Metal code inside the block, whatever devices this host has."""
    get_gpu_type.cache_clear()
    try:
        with (
            patch.object(lowering, _ATOMICS, lambda dtype: dtype not in _ATOMIC),
            patch.object(inductor_utils, _ATOMICS, lambda dtype: dtype not in _ATOMIC),
            # Otherwise an extra kernel writes each tensor of up to eight elements before its use.
            patch.object(graph_module.GraphLowering, "can_inline_constant", lambda *_: False),
            # Otherwise x / 41 becomes a product with 1 / 41, which is less than 1 for 41.
            patch.object(lowering, "get_constant_value", lambda _: None),
            patch.object(torch.mps, "is_available", lambda: True),
            patch.object(torch.backends.mps, "is_available", lambda: True),
            patch.object(torch.backends.mps, "get_core_count", lambda: _CORES),
        ):
            yield
    finally:
        get_gpu_type.cache_clear()


def metal_header() -> str:
    """Return the header of generated Metal kernels: torch's, flattened, and ours.

    It is the same for every program, so that a kernel compiler can keep it compiled.
    """
    lines = [f"#include <c10/metal/{name}.h>\n" for name in _METAL_HEADERS]
    folder = Path(torch.__file__).parent / "include"
    ours = built("lowering/metal_functions.h").read_text()
    # Metal's safe math mode still contracts within a statement.
    head = "#pragma METAL fp contract(off)"
    return f"{head}\n{_cpp_embed_headers._embed_headers(lines, [folder], set())}\n{ours}"


def _constant_name(name: str) -> str:
    """Return a variable name that is neither a C++ keyword nor one of the wrapper's own names."""
    return f"constant_{normalize_name(name)}"


def _capture(
    graph: GraphLowering, wrapper: str, kernels: str, _extern_nodes: str | None, **_: Any
) -> None:
    names = {
        name: graph.dynamo_flat_name_to_original_fqn.get(name, graph.allocated_constant_name[name])
        for name in graph.constants
    }
    constants = {names[n]: graph.get_original_value_of_constant(n) for n in graph.constants}
    uses, shaders = _kernel_uses(graph, wrapper), dict(getattr(graph.wrapper_code, "shaders", {}))
    number = len(re.findall(r'^extern "C"', kernels, re.MULTILINE))
    raise _Captured(GeneratedCode(wrapper, kernels, constants, uses, number, shaders))


def _kernel_uses(graph: GraphLowering, wrapper: str) -> dict[str, tuple[str, ...]]:
    """Return every `aoti_torch_<device>_*` function and proxied operator, with its sites."""
    sites: defaultdict[str, list[str]] = defaultdict(list)
    operations: list[Any] = graph.operations
    for operation in operations:
        overload = getattr(operation, "op_overload", None)
        found = [origin(node) for node in sorted(operation.origins, key=lambda n: n.name)]
        if getattr(operation, "use_runtime_dispatch", False):
            sites[str(overload)] += found
        elif getattr(operation, "cpp_kernel_name", None) is not None:
            sites[operation.get_kernel_name()] += found
    prefix = f"aoti_torch_{graph.device_type}_"
    called = {s for s in _SYMBOL.findall(wrapper) if s.startswith(prefix)}
    # Inductor may append a version to the operation's name: foo_v2 for foo.
    plain = {s: s if s in sites else re.sub(r"_v\d+$", "", s) for s in called}
    uses = {symbol: tuple(dict.fromkeys(sites.get(plain[symbol], ()))) for symbol in called}
    if _PROXY in wrapper:
        uses |= {k: tuple(dict.fromkeys(v)) for k, v in sites.items() if not k.startswith("aoti_")}
    return uses


_ATOMIC, _ATOMICS = {torch.float32, torch.int32}, "needs_fallback_due_to_atomic_add_limitations"
_DTYPES = "DtypePropagationOpsHandler"
_simplified = sizevars.stride_at_vec_range


@lru_cache
def stride_in_range(
    index: sympy.Expr, variable: sympy.Symbol, vector_length: int | None = None
) -> sympy.Expr:
    """Return the change of an index for one step of a loop's variable.

    For a long index, or one that reverses as reflected margins do, it is not simplified.

    An unsimplified result still contains the variable, so Inductor treats it as a varying stride:
    it generates that loop without vectors, with the same results.
    """
    index = sympy.Add(*(part for part in sympy.Add.make_args(index) if part.has(variable)))
    if index.is_polynomial(variable):  # most are; it has no quotient to simplify
        step = sympy.expand(index.subs({variable: variable + 1}) - index)
        if not step.has(variable):
            return step
    if index.count_ops() <= _LONGEST and not index.has(*_BENDS):
        return _simplified(index, variable, vector_length)
    return index.subs({variable: variable + 1}) - index
