"""How Inductor writes a program's C++: loops, their arithmetic, and the wrapper that calls them.

The changes are subclasses of torch's classes, which `inductor.generate_code` registers as it runs:

- **Arithmetic as in eager PyTorch**, where Inductor's own differs. Inductor looks up numeric
  functions, and which of them support vectors, in the dictionaries of its classes, so ours are put
  in their place during code generation. docs/special-values.md lists the remaining differences.
- **Loops that fail the run on a wrong index or divisor** instead of ending the process: Inductor
  checks indices that come from data where it uses them, and throws, and OpenMP allows no exception
  to leave a loop's body. Whatever a body throws is kept, and rethrown at the end of its function
  (checked_loops.h). Torch's own flag for a division by zero is one variable for all runs of a
  process, so it is left out.
- **A wrapper that checks each fallback kernel's result and error code.** Kernels lay out their
  results by rules of their own, which Inductor only compares if an environment variable asks for
  it, and two kinds of kernels are called without a check of their return code (cpp_wrapper.h).
- **No interface and no constructor**: AOTInductor's C interface, which is the same for every model
  and takes three fifths of the compile time, is compiled once, as is the code that makes a model; a
  wrapper holds its names, sizes and constants as data. It checks no inputs, as the runtime does.
- **On the CPU, timed kernels**: the runtime is told when a generated kernel begins and ends
  (timed_kernels.h).
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Self
from unittest.mock import patch

import sympy
import torch
from torch._decomp.decompositions import _index_add, pw_cast_for_opmath
from torch._inductor import codegen, inductor_prims, ir, lowering
from torch._inductor.codegen.common import BracesBuffer, KernelArgs
from torch._inductor.codegen.cpp import (
    CppKernel,
    CppKernelProxy,
    CppOverrides,
    CppScheduling,
    CppTile2DKernel,
    CppVecKernel,
    CppVecOverrides,
    KernelGroup,
)
from torch._inductor.codegen.cpp_utils import cexpr, cexpr_index
from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
from torch._inductor.decomposition import decompositions
from torch._inductor.utils import IndentedBuffer
from torch._inductor.virtualized import V, ops
from torch.fx import Node
from torch.utils._sympy.functions import ModularIndexing

from menagerie.paths import built
from transforms.graph.record import origin
from zoo.errors import LoweringError

aten = torch.ops.aten

# The message of a failed index check, before the location.
OUTSIDE: Final = "an index is out of range"

# Parts of an operator's name that show that it indexes by values or divides integers.
_CAN_FAIL = ("embedding", "gather", "index", "take", "scatter", "div", "mod", "remainder", "assert")
_BYTES = {torch.uint8, torch.int8, torch.bool}
NARROW: Final = {torch.uint8, torch.int8, torch.int16}
# Inductor's name -> the name in checked_loops.h.
_DIVISIONS = {
    "truncdiv": "kTruncated",
    "floordiv": "kFloored",
    "mod": "kModulus",
    "remainder": "kRemainder",
}
_TORCHS_NOTE = "inductor_cpu_integer_div_error"
_FIELD = re.compile(r"\s*constants_info_\[(\d+)\]\.(\w+) = (.*);")
# The fields that Inductor sets for a constant, in the order of `ConstantFacts` (cpp_wrapper.h).
_FIELDS = (
    "name", "dtype", "device_type", "offset", "data_size", "from_folded", "type", "shape", "stride",
    "layout", "original_fqn",
)  # fmt: skip
_MODEL_HEADER = "<torch/csrc/inductor/aoti_include/{}.h>"
_SHIM_HEADER = "<torch/csrc/inductor/cpp_wrapper/device_internal/{}.h>"


def fault_place() -> str:
    """Name the nodes of the current loop that can fail, with module, file and line."""
    current = V.kernel.current_node
    nodes = list(current.node.get_origins() if current else ())
    likely = [node for node in nodes if any(word in str(node.target) for word in _CAN_FAIL)]
    return located(likely or nodes)


def located(nodes: Iterable[Node]) -> str:
    """Return the given calls, each with its module, file and line."""
    calls = {node.name: node for node in nodes if node.op == "call_function"}
    return " or ".join(f"{name}, {origin(calls[name])}" for name in sorted(calls))


def not_the_pinned(place: str, fact: str) -> LoweringError:
    """Return the error for a torch whose generated code differs from the expected code."""
    step = "Install the torch that pyproject.toml pins, or adapt transforms/lowering"
    return LoweringError(place, f"Inductor's code is not built as it was: {fact}", step)


def quoted(text: str) -> str:
    """Return the text as a C++ string literal."""
    return json.dumps(text, ensure_ascii=False)


@contextmanager
def numbers_as_eager() -> Iterator[None]:
    """Make Inductor write our functions inside the block."""
    changes: list[tuple[Any, str, Any]] = [
        (lowering, "_div_rn", lowering.make_pointwise(_floor_of_quotient)),
        (ir.Reduction, "create", classmethod(_reduce)),
        (ir.WelfordReduction, "create", classmethod(_welford)),
        (ir.DtypeView, "create", classmethod(_bits)),
        (lowering, "var_mean_sum_", _var_mean),
        (lowering, "_pool_offsets_to_indices", _pool_indices),
        # std::abs returns an int, even for int16.
        (CppOverrides, "abs", staticmethod(lambda x: f"decltype({x})(std::abs({x}))")),
        (CppVecOverrides, "expm1", staticmethod(expm1)),
        (CppVecOverrides, "masked", staticmethod(_masked)),
    ]
    for name, division in _DIVISIONS.items():
        vector = _vector_division(division)
        vector.__name__ = name  # a vector function finds the scalar one by this name
        scalar = _scalar_division(division, getattr(CppOverrides, name))
        changes += [(CppOverrides, name, staticmethod(scalar))]
        changes += [(CppVecOverrides, name, staticmethod(vector))]
    with ExitStack() as stack:
        stack.enter_context(patch.dict(decompositions, _DEVIATIONS))
        for change in changes:
            stack.enter_context(patch.object(*change))
        yield


_plain_reduction = ir.Reduction.create.__func__  # type: ignore[attr-defined]


def _reduce(
    cls: type[ir.Reduction], device: torch.device, dst_dtype: torch.dtype, src_dtype: torch.dtype,
    inner_fn: Callable[..., Any], *given: Any, **keywords: Any,
) -> Any:  # fmt: skip
    """Return a reduction; reduce bytes, and on Metal sums and products of narrow ints, as int32.

    A vector has more byte lanes than its loop has steps; Inductor loads a 1 into the others and
    reduces them as well. A true bool is NaN in a vector. Positions over several axes are numbered
    in the order of the axes, not of the loops.
    """
    sizes = keywords.get("reduction_ranges", ())
    if keywords.get("reduction_type") in {"argmax", "argmin"} and len(sizes) > 1:
        whole, of_axes = [sympy.prod(sizes)], inner_fn
        split = ir.View.dynamic_reshape_indexer(sizes, whole)
        inner_fn = lambda index, place: of_axes(index, split(place))  # noqa: E731
        keywords["reduction_ranges"] = whole
    kind = keywords.get("reduction_type")
    widely = _BYTES if device.type == "cpu" else NARROW if kind in {"sum", "prod"} else {}
    if src_dtype not in widely or kind == "any":
        return _plain_reduction(cls, device, dst_dtype, src_dtype, inner_fn, *given, **keywords)

    def widened(*index: Any) -> Any:
        value = inner_fn(*index)
        if isinstance(value, tuple):  # with its position
            return (ops.to_dtype(value[0], torch.int32), *value[1:])
        return ops.to_dtype(value, torch.int32)

    wide = torch.int32 if dst_dtype in widely else dst_dtype
    result = _plain_reduction(cls, device, wide, torch.int32, widened, *given, **keywords)
    result.realize()
    return lowering.to_dtype(result, dst_dtype)


def _bits(_: type, x: Any, dtype: torch.dtype) -> Any:
    """Reinterpret numbers as another dtype of their size; torch's view needs a kernel."""
    load, source = x.make_loader(), x.get_dtype()

    def read(index: Any) -> Any:
        return ops.to_dtype_bitcast(load(index), dtype, source)

    where = {"device": x.get_device(), "ranges": x.get_size()}
    return ir.Pointwise.create(dtype=dtype, inner_fn=read, **where).data


def _pool_indices(
    offsets: Any, kernel: Sequence[Any], size: Sequence[Any], place_of: Callable[..., Any]
) -> Any:
    """Return the indices of a window's maxima; of equal ones the first inside the input.

    Padding is the type's lowest number, so a window of only that has its maximum outside.
    """
    axes = len(kernel)
    padded = [place < 0 for place in place_of([sympy.S.Zero] * axes, [0] * axes)]

    def index(position: Sequence[Any]) -> Any:
        offset = ops.indirect_indexing(offsets.make_loader()(position), math.prod(kernel))
        step = inductor_prims._flattened_index_to_nd(offset, kernel)  # type: ignore[no-untyped-call]
        start, second = place_of(position, [0] * axes), place_of(position, [1] * axes)
        flat = ops.constant(0, torch.int64)
        for axis, place in enumerate(place_of(position, step)):
            value = ops.index_expr(place, torch.int64)
            if padded[axis]:
                dilation = second[axis] - start[axis]
                first = ModularIndexing(start[axis] + dilation * kernel[axis], 1, dilation)
                value = ops.maximum(value, ops.index_expr(first, torch.int64))
            flat = ops.add(ops.mul(flat, ops.index_expr(size[axis], torch.int64)), value)
        return flat

    sizes = {"device": offsets.get_device(), "ranges": offsets.get_size()}
    return ir.Pointwise.create(dtype=torch.int64, inner_fn=index, **sizes)


_plain_welford = ir.WelfordReduction.create.__func__  # type: ignore[attr-defined]


def _welford(cls: type[ir.WelfordReduction], *given: Any, **keywords: Any) -> Any:
    """Return mean, sum of squares and count of rows; NaN squares for a single NaN or infinity."""
    mean, squares, count = _plain_welford(cls, *given, **keywords)
    if keywords["reduction_type"] == "welford_reduce":
        alone = sympy.prod(keywords["reduction_ranges"]) == 1
        squares = lowering.sub(mean, mean) if alone else squares
    return mean, squares, count


_mean, _plain_var_mean = lowering.mean, lowering.var_mean_sum_


def _var_mean(*given: Any, **keywords: Any) -> Any:
    """Compute variance and mean in separate passes; variance is exactly 0 for equal elements."""
    with patch.object(lowering, "mean", _corrected_mean):
        return _plain_var_mean(*given, **keywords)  # type: ignore[no-untyped-call]


def _spread(
    x: torch.Tensor,
    dim: int | list[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    deviation: bool,
) -> torch.Tensor:
    """Compute variance or deviation in float32, scaled to near 1 and centred; doubles directly.

    Eager sums in float64, which neither overflows nor loses an offset.
    """
    axes = [dim] if isinstance(dim, int) else dim or list(range(x.dim()))
    if x.dtype == torch.float64 or x.dim() == 0 or 0 in x.shape:
        plain = torch.var_mean(x, axes, correction=correction, keepdim=keepdim)[0]
        return plain.sqrt() if deviation else plain
    single = x.float()
    size = single.abs().amax(axes, keepdim=True)
    unit = torch.where(size > 2.0**50, 2.0**-80, torch.where(size < 2.0**-40, 2.0**80, 1.0))
    near = single * unit
    centred = near - near.mean(axes, keepdim=True)
    variance = torch.var_mean(centred, axes, correction=correction, keepdim=True)[0]
    result = variance.sqrt() / unit if deviation else variance / unit / unit
    result = result.to(x.dtype)
    return result if keepdim else result.squeeze(axes)


def _std_mean(x: torch.Tensor, dim: Any = None, **given: Any) -> tuple[torch.Tensor, torch.Tensor]:
    mean = torch.mean(x, dim, keepdim=given.get("keepdim", False))
    eagers = torch.where(mean.isinf(), torch.nan, mean)  # for a row with an infinity
    return _spread(x, dim, deviation=True, **given), eagers


@pw_cast_for_opmath
def _round(x: torch.Tensor, decimals: int) -> torch.Tensor:
    """Round to decimals by a division; torch multiplies by 0.1 and turns 13 into 1.3000001."""
    shift = 10.0 ** abs(decimals)
    return torch.round(x / shift) * shift if decimals < 0 else torch.round(x * shift) / shift


_DEVIATIONS = {
    aten.round.decimals: _round,
    **dict.fromkeys((aten.lerp.Scalar, aten.lerp.Tensor), pw_cast_for_opmath(torch._refs.lerp)),
    aten.index_add.default: partial(_index_add, inplace=False),  # torch's leaves out bfloat16
    aten.var.correction: partial(_spread, deviation=False),
    aten.std.correction: partial(_spread, deviation=True),
    aten.std_mean.correction: _std_mean,
}


def _corrected_mean(x: Any, axis: Any, keepdim: bool) -> Any:
    """Return the mean plus the mean of the residuals, which corrects its rounding."""
    near = _mean(x, axis, keepdim)
    return lowering.add(near, _mean(lowering.sub(x, near), axis, keepdim))


def expm1(x: Any) -> str:
    """Return e^x - 1 as eager computes it; Inductor's e^x minus 1 is 0 for tiny numbers."""
    return f"{x}.expm1()"


_plain_masked = CppVecOverrides.masked


def _masked(mask: Any, body: Callable[[], Any], other: Any) -> Any:
    """Compute the body where a mask is true; make bools float lanes, which `other` has too.

    A comparison of integers yields integer lanes.
    """

    def of_float() -> Any:
        result = body()
        if result.dtype != torch.bool or not result.is_vec:
            return result
        cast = V.kernel._get_mask_cast(result, torch.float)
        lanes = V.kernel.cse.generate(V.kernel.compute, cast, dtype=torch.bool)
        lanes.update_on_args("masked", (result,), {})
        return lanes

    return _plain_masked(mask, of_float, other)  # type: ignore[no-untyped-call]


def _scalar_division(division: str, of_floats: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def divide(a: Any, b: Any) -> Any:
        if a.dtype.is_floating_point or b.dtype.is_floating_point:
            return of_floats(a, b)
        place = V.kernel.args.text(fault_place())
        return f"divided<Division::{division}>({a}, {b}, loop_fault, {place})"

    return divide


def _vector_division(division: str) -> Callable[..., str]:
    def divide(a: Any, b: Any) -> str:
        if a.dtype.is_floating_point:
            return _float_remainder(a, b)
        divisor, mask = str(b), V.kernel._load_mask
        if mask is not None and mask.is_vec:  # masked lanes may hold anything
            one = V.kernel.broadcast(ops.constant(1, b.dtype).value)
            divisor = CppVecOverrides.where(mask, b, one)  # type: ignore[no-untyped-call]
        count = cexpr_index(V.kernel.num_elems)  # type: ignore[no-untyped-call]
        place = V.kernel.args.text(fault_place())
        return f"divided<Division::{division}>({a}, {divisor}, {count}, loop_fault, {place})"

    return divide


def _float_remainder(a: Any, b: Any) -> str:
    rest, zero = f"{a}.fmod({b})", f"decltype({a})(0)"
    return (
        f"[&]() {{ const auto rest = {rest}; const auto turned = (rest != {zero}) & "
        f"(({b} < {zero}) ^ (rest < {zero})); "
        f"return decltype({a})::blendv(rest, rest + {b}, turned); }}()"
    )


def _floor_of_quotient(a: Any, b: Any) -> Any:
    """Return the floor of a / b, not of the rounded quotient (c10's `div_floor_floating`)."""
    zero, half, one = (ops.constant(number, torch.float32) for number in (0.0, 0.5, 1.0))
    plain = ops.truediv(a, b)
    overflown = ops.logical_and(ops.isinf(plain), ops.logical_not(ops.isinf(a)))
    rest = ops.where(overflown, zero, ops.fmod(a, b))
    quotient = ops.truediv(ops.sub(a, rest), b)
    turned = ops.logical_and(ops.ne(rest, zero), ops.ne(ops.lt(b, zero), ops.lt(rest, zero)))
    quotient = ops.where(turned, ops.sub(quotient, one), quotient)
    floor = ops.floor(quotient)
    floor = ops.where(ops.gt(ops.sub(quotient, floor), half), ops.add(floor, one), floor)
    floor = ops.where(ops.eq(quotient, zero), ops.mul(plain, zero), floor)
    return ops.where(ops.eq(b, zero), plain, floor)


def inserted(header: str) -> str:
    """Return the text of a header in the runtime's folder `lowering`, for generated code."""
    return built(f"lowering/{header}").read_text().replace("#pragma once\n", "")


# The text before a device's header; on a GPU, torch's constants suffice.
_CONSTANTS: Final = {"cpu": inserted("constant_handle.h"), "mps": ""}
# The first part of precompiled headers.
LEAN_LIBRARY: Final = inserted("lean_library.h")
# The declarations that generated kernels with checks need before them.
FAULTS: Final = inserted("checked_loops.h")


class _Arguments(KernelArgs):
    """A function's arguments; the last are its checks' messages, so similar layers share it."""

    def __init__(self) -> None:
        super().__init__()
        self._texts: list[str] = []

    def text(self, text: str) -> str:
        """Return the name that a message has in the function."""
        if text not in self._texts:
            self._texts.append(text)
        return f"text{self._texts.index(text)}"

    def cpp_argdefs(self, *given: Any) -> tuple[list[str], list[str], list[str]]:
        """Return the arguments of the function's definition and of its call, and their types."""
        defined, passed, types = super().cpp_argdefs(*given)
        defined += [f"const char* {self.text(text)}" for text in self._texts]
        passed += [quoted(text) for text in self._texts]
        types += ["text"] * len(self._texts)  # an asterisk would mark it as a tensor
        return defined, passed, types


class _Function(KernelGroup):
    """A C++ function that rethrows, after its loops, what they have thrown."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.args = _Arguments()

    def codegen_group(self, name: str | None = None) -> str:
        """Return the function's text."""
        self.stack.close()  # the loops are complete, so no parallel region is open
        if "loop_fault" in self.loops_code.getvalue():
            loops, self.loops_code = self.loops_code, BracesBuffer()
            self.loops_code.writeline("LoopFault loop_fault;")
            self.loops_code.splice(loops)
            self.loops_code.writeline("loop_fault.rethrow();")
        lines = super().codegen_group(name).splitlines(keepends=True)
        return "".join(line for line in lines if _TORCHS_NOTE not in line)


class _Checked(CppKernel):
    """A mixin for loops whose bodies keep what a check throws, and name the model's line."""

    args: _Arguments

    def indirect_assert(self, var: Any, lower: Any, upper: Any, mask: Any = None) -> str:
        """Return the check of an index."""
        check: str = super().indirect_assert(var, lower, upper, mask)
        condition = check.partition(', "index out of bounds')[0]
        return f"{condition}, {self.args.text(f'{OUTSIDE}: {fault_place()}')})"

    def gen_body(self, code: BracesBuffer | None = None) -> BracesBuffer:
        """Return the innermost loop's body."""
        return self._keeping(super().gen_body(code))

    @contextmanager
    def write_to_suffix(self) -> Iterator[None]:
        """Write the code that uses a reduction's result after the reduction's loop."""
        before, self.reduction_suffix = self.reduction_suffix, BracesBuffer()
        with super().write_to_suffix():
            yield
        before.splice(self._keeping(self.reduction_suffix))
        self.reduction_suffix = before

    def _keeping(self, body: BracesBuffer) -> BracesBuffer:
        if f"{self.assert_function}(" not in body.getvalue():
            return body
        code = BracesBuffer()
        code.writeline("try")
        with code.indent():
            code.splice(body)
        code.writeline("catch (...) { loop_fault.keep(); }")
        return code


class _Scalars(_Checked):
    """Scalar steps of a whole loop, or of the steps that vectors leave over."""

    def codegen_conditions(self, code: Any, prefix: Any = None, var: Any = None) -> bool:
        """Return the steps at which a body runs: one, if it has a loop of its own inside."""
        whole = dict(list(zip(self.itervars, self.ranges, strict=True))[1:])
        held = self.active_ranges
        self.active_ranges = {
            v: (first, 1 if first == 0 and whole.get(v) == end else end)
            for v, (first, end) in held.items()
        }
        written: bool = super().codegen_conditions(code, prefix, var)
        self.active_ranges = held
        return written


class _Vectors(_Checked, CppVecKernel):
    pass


class _Tiles(_Vectors, CppTile2DKernel):
    def store(self, name: str, index: Any, value: Any, mode: Any = None) -> None:
        """Store as many bools as a tile's row has; torch stores a vector (pytorch #196681)."""
        rest = self.tail_size or (self.num_elems if V.graph.get_dtype(name) == torch.bool else None)
        with patch.object(self, "tail_size", rest):
            super().store(name, index, value, mode)  # type: ignore[no-untyped-call]


class _Loops(CppKernelProxy):
    kernel_cls = _Scalars
    vec_kernel_cls = _Vectors
    tile2d_kernel_cls = _Tiles


class CheckedScheduling(CppScheduling):
    """Torch's own generation of C++ loops, with checks that keep their faults."""

    kernel_proxy_cls = _Loops

    def reset_kernel_group(self) -> None:
        """Begin a new function."""
        self.kernel_group = _Function()


def model_facts(constructor: str, inputs: Sequence[str], outputs: int) -> str:
    """Return a model's constructor data as C++; see `ModelFacts` of cpp_wrapper.h.

    `constructor` is Inductor's C++, with one statement per line. Raise LoweringError if torch
    describes a constant by other fields than expected.
    """
    constants: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for found in filter(None, map(_FIELD.fullmatch, constructor.split("\n"))):
        constants[found[1]][found[2]] = found[3]
    rows = [_row(each) for each in constants.values()]
    both = ((each["shape"], each["stride"]) for each in constants.values())
    extents = [found.strip("{}") for pair in both for found in pair]
    names = [quoted(name) for name in (*inputs, *(f"output{n}" for n in range(outputs)))]
    return _FACTS.format(
        names=", ".join((*names, "nullptr")),
        described=",\n  ".join((*rows, "{}")),
        extents=", ".join((*filter(None, extents), "0")),
        counts=f"{len(inputs)}, {outputs}, {len(constants)}",
    )


_FACTS = """\
namespace torch::aot_inductor {{
using AOTInductorModelKernels = Program::Kernels;
static const char* const model_names[] = {{{names}}};
static const ConstantFacts model_constants[] = {{
  {described}
}};
static constexpr int64_t model_extents[] = {{{extents}}};
const ModelFacts model_facts = {{
  {counts}, model_names, model_constants, model_extents
}};
}} // namespace torch::aot_inductor
using namespace torch::aot_inductor;
"""


def _row(constant: dict[str, str]) -> str:
    """Return a row of the constants table, with torch's enum values as runtime calls."""
    if set(constant) != set(_FIELDS):
        raise not_the_pinned("inductor", f"torch describes a constant by {', '.join(constant)}")
    fields = constant | {"shape": str(len(constant["shape"].strip("{}").split()))}
    for name in ("dtype", "device_type", "layout"):
        fields[name] = re.sub(r".*\bcached_(torch_\w+).*", r"aoti_\1", fields[name])
    return f"{{{', '.join(fields[name] for name in _FIELDS if name != 'stride')}}}"


class CheckedWrapper(CppWrapperCpu):
    """Torch's own C++ wrapper with checked fallback results, and data instead of a constructor.

    See cpp_wrapper.h.
    """

    headers: ClassVar[tuple[str, ...]] = ("cpp_wrapper.h",)  # ours, included after torch's

    @classmethod
    def create(cls, *_args: Any, **_keywords: Any) -> Self:
        """Return an instance of this class; torch's own method would return torch's class."""
        return cls()

    @staticmethod
    def get_device_include_path_aot(device: str) -> str:
        """Return no include, because the prelude has everything that wrappers need."""
        del device
        return ""

    def write_header(self) -> None:
        """Write torch's includes, then ours."""
        super().write_header()  # type: ignore[no-untyped-call]
        for name in () if V.graph.is_const_graph else self.headers:
            self.header.splice(inserted(name))

    def _write_aoti_interface_header(self) -> None:
        """Write no interface: it is compiled separately (`interface`)."""

    def _codegen_aoti_model_class(self) -> None:
        """Write data instead of the model's constructor, which the interface contains."""
        before, self.prefix = self.prefix, IndentedBuffer()
        names = V.graph.allocated_constant_name  # they are put between quotes unescaped
        with patch.dict(names, {n: quoted(name)[1:-1] for n, name in names.items()}):
            self.codegen_model_constructor()  # type: ignore[no-untyped-call]
        inputs, outputs = list(V.graph.graph_inputs), len(V.graph.graph_outputs)
        before.splice(model_facts(self.prefix.getvalue(), inputs, outputs))
        self.prefix = before

    def generate_c_shim_extern_kernel_alloc(
        self, extern_kernel: ir.ExternKernelAlloc, args: list[str]
    ) -> None:
        """Write the call of a kernel with one result."""
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
        """Write the call of a kernel with several results."""
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

    def generate_input_output_runtime_checks(self) -> None:
        """Write no checks: the runtime has compared inputs with the manifest."""

    def _codegen_assert_size_stride(self, *_: object) -> None:
        """Write no checks: the runtime checks inputs, and `lay_out` kernels' results."""

    def _generate_scatter_fallback(self, *args: Any, **keywords: Any) -> None:
        with self._checking():
            super()._generate_scatter_fallback(*args, **keywords)  # type: ignore[no-untyped-call]

    def _generate_index_put_fallback(self, *args: Any, **keywords: Any) -> None:
        with self._checking():
            super()._generate_index_put_fallback(*args, **keywords)  # type: ignore[no-untyped-call]

    @contextmanager
    def _checking(self) -> Iterator[None]:
        """Check the error code of the single call that is written inside the block."""
        write: Callable[[str], None] = self.writeline

        def checked(call: str) -> None:
            write(f"AOTI_TORCH_ERROR_CODE_CHECK({call.removesuffix(';')});")

        with self.set_writeline(self.wrapper_call, checked):
            yield


class TimedWrapper(CheckedWrapper):
    """A wrapper whose generated kernels have names in a profile."""

    headers = (*CheckedWrapper.headers, "timed_kernels.h")
    _operands = "0"  # bytes, as a C++ expression, of the call being written

    def _generate_kernel_call_helper(
        self, kernel_name: str, call_args: Sequence[Any], **keywords: Any
    ) -> None:
        self._operands = _bytes_of(call_args)
        super()._generate_kernel_call_helper(kernel_name, call_args, **keywords)

    def wrap_kernel_call(self, name: str, call_args: Sequence[str]) -> str:
        """Return the call, timed."""
        call = f"{name}({', '.join(call_args)});"
        return f'{{ TimedKernel timed("{name}", {self._operands}); {call} }}'


def _bytes_of(call_args: Sequence[Any]) -> str:
    total: sympy.Expr = sympy.Integer(0)
    for name in dict.fromkeys(str(argument) for argument in call_args):
        buffer = V.graph.try_get_buffer(name)
        if buffer is not None:
            total += sympy.sympify(buffer.get_numel()) * buffer.get_dtype().itemsize
    text: str = cexpr(V.graph.sizevars.simplify(total))
    return text


def wrapper_prelude(device: str) -> str:
    """Return the header before a device's wrappers (wrapper_prelude.h)."""
    shims = f"#define MENAGERIE_DEVICE {_SHIM_HEADER.format(device)}\n"
    return LEAN_LIBRARY + shims + _CONSTANTS[device] + inserted("wrapper_prelude.h")


def interface(device: str) -> str:
    """Return the C++ of torch's interface file with a device's header, and of our model code."""
    [folder] = codegen.__path__
    text = Path(folder, "aoti_runtime", "interface.cpp").read_text()
    made = inserted("cpp_wrapper.h")
    front = f"{_CONSTANTS[device]}#include {_MODEL_HEADER.format(device)}"
    return f"{front}\n{text}\n#define MENAGERIE_INTERFACE\n{made}"
