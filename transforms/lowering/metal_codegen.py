"""How Inductor writes a program for Metal: C++ to compile here, and shaders for the device.

The changes are subclasses of torch's classes, which `inductor.generate_code` registers as it runs.
One thing has no hook and is changed in the finished text: the spelling of int64. Functions that
Inductor's modules hold since their import print the sizes.
"""

from __future__ import annotations

import functools
import hashlib
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

import sympy
import torch
from torch._inductor.codegen import mps
from torch._inductor.codegen.common import CSEVariable
from torch._inductor.codegen.cpp_wrapper_mps import CppWrapperMps
from torch._inductor.codegen.mps_device_op_overrides import MPSDeviceOpOverrides
from torch._inductor.virtualized import V, ops
from torch.utils._sympy.functions import PythonMod
from torch.utils._sympy.symbol import SymT, symbol_is_type
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from transforms.lowering.cpp_codegen import (
    NARROW,
    OUTSIDE,
    CheckedWrapper,
    fault_place,
    located,
    not_the_pinned,
    quoted,
)

# The wrapper's name for its shaders when it requests them from the runtime; see FORMAT.md, rule 10.
SHADER_SCHEME = "menagerie"
_BEGIN, _END = '(R"MTL(', ')MTL");'
_KERNEL_NAME = "kernel void generated_kernel("
_READ = re.compile(r"\bconstant (\w+\* in_ptr)")
_POSITION = re.compile(r"( *)(\w+ \w+ \[\[thread_position_in_grid\]\])")
_SIZES = (SymT.SIZE, SymT.PRECOMPUTED_SIZE)
_INT32 = torch.iinfo(torch.int32)
_LITERAL = re.compile(r"\b(\d+)LL?\b")
# If one of these is left, torch writes part of its wrapper outside the methods that we replace.
_FOREIGN = ("MTL(", "generated_kernel", "shared_callback", "MTLFunction_t", "ATen/")


def _called(function: str, *, single: bool = False) -> Any:
    """Return a method that writes a call of a function of Metal or of metal_functions.h.

    If it is `single`, operands are converted, so that numbers stored as halves are computed in
    float.
    """

    def call(*operands: CSEVariable) -> str:
        given = (f"static_cast<float>({each})" if single else str(each) for each in operands)
        return f"{function}({', '.join(given)})"

    return staticmethod(call)


def _wrapped(name: str) -> Any:
    """Return a method that writes torch's integer expression, which wraps around at its type's end.

    C++ widens narrow integers, and leaves the overflow of signed ones undefined.
    """

    def call(*operands: CSEVariable) -> str:
        dtypes = {getattr(each, "dtype", None) for each in operands}
        if not dtypes <= {*NARROW, torch.int32, torch.int64}:
            return str(getattr(mps.MetalOverrides, name)(*operands))
        kind = _common_type(*operands)
        given = operands if dtypes <= NARROW else [f"static_cast<u{kind}>({x})" for x in operands]
        return f"static_cast<{kind}>({getattr(mps.MetalOverrides, name)(*given)})"

    return staticmethod(call)


def _shifted(side: str) -> Any:
    return staticmethod(lambda a, b: f"menagerie::shifted_{side}<{_common_type(a, b)}>({a}, {b})")


def _is_real(x: Any) -> bool:
    return x.dtype is not None and bool(x.dtype.is_floating_point)


def _common_type(*operands: Any) -> str:
    """Return Metal's name of the type that integers are promoted to; an index has no dtype."""
    dtypes = [each.dtype or torch.int64 for each in operands]
    return mps.DTYPE_TO_METAL[functools.reduce(torch.promote_types, dtypes)]


class MetalFunctions(mps.MetalOverrides):
    """Torch's functions and others that Metal has and torch lacks; each returns an expression."""

    add, sub, mul, neg, bitwise_not = map(_wrapped, ("add", "sub", "mul", "neg", "bitwise_not"))
    bitwise_left_shift, bitwise_right_shift = map(_shifted, ("left", "right"))

    sinh, cosh, asinh, acosh, copysign, nextafter = (
        _called(f"metal::{name}", single=True)
        for name in ("sinh", "cosh", "asinh", "acosh", "copysign", "nextafter")
    )
    log1p, erfcx = (_called(f"c10::metal::{name}", single=True) for name in ("log1p", "erfcx"))
    expm1, erfc, lgamma, ndtri, hypot, zeta = (
        _called(f"menagerie::{name}")
        for name in ("expm1", "erfc", "lgamma", "ndtri", "hypot", "zeta")
    )
    abs = staticmethod(lambda x: f"{'metal::abs' if _is_real(x) else 'menagerie::magnitude'}({x})")
    isnan = staticmethod(lambda x: f"metal::isnan({x})" if _is_real(x) else "false")
    signbit = staticmethod(lambda x: f"metal::signbit({x})" if _is_real(x) else f"({x} < 0)")
    truncdiv = staticmethod(lambda a, b: _divided("kTruncated", a, b))
    floordiv = staticmethod(lambda a, b: _divided("kFloored", a, b))
    mod = staticmethod(lambda x0, x1: _divided("kModulus", x0, x1))

    @staticmethod
    def index_expr(expr: sympy.Expr, dtype: torch.dtype) -> Any:
        """Compute a number from positions, which are 32-bit, in as many bits as it may need."""
        index = V.kernel.prepare_indexing(expr)
        if not _fits_int(index):
            places = [x for x in index.free_symbols if not symbol_is_type(x, _SIZES)]
            index = index.xreplace({x: sympy.Symbol(f"long({x})", integer=True) for x in places})
        text = V.kernel.index_to_str(index)
        return ops.to_dtype(V.kernel.cse.generate(V.kernel.compute, text), dtype)

    value_expr = index_expr

    @staticmethod
    def constant(val: Any, dtype: torch.dtype) -> str:
        """Return a number's literal; the least int64, without its sign, is too large for one."""
        least = isinstance(val, int) and val == torch.iinfo(torch.int64).min
        return "LONG_MIN" if least else str(mps.MetalOverrides.constant(val, dtype))

    @staticmethod
    def to_dtype(x: Any, dtype: torch.dtype, *given: Any, **named: Any) -> str:
        """Cast a number; halves are computed as float, as Metal casts none to the other kind."""
        if dtype in {torch.float16, torch.bfloat16}:
            x = f"static_cast<float>({x})"
            if named.get("use_compute_types", True):
                return str(x)
        return str(mps.MetalOverrides.to_dtype(x, dtype, *given, **named))

    @staticmethod
    def sign(x: Any) -> str:
        """Return -1, 0 or 1; 0 for -0 and NaN."""
        return f"static_cast<decltype({x})>(({x} > 0) - ({x} < 0))"

    @staticmethod
    def where(a: Any, b: Any, c: Any) -> str:
        """Select one of two numbers; torch casts the other to a constant's 32-bit int."""
        if torch.int64 in (getattr(b, "dtype", None), getattr(c, "dtype", None)):
            return f"{a} ? static_cast<long>({b}) : static_cast<long>({c})"
        return str(mps.MetalOverrides.where(a, b, c))

    @staticmethod
    def ldexp(x: CSEVariable, exponent: CSEVariable) -> str:
        """Return a number times a power of two."""
        return f"metal::ldexp(static_cast<float>({x}), static_cast<int>({exponent}))"

    @staticmethod
    def frexp(x: CSEVariable) -> tuple[CSEVariable, CSEVariable]:
        """Return a number's fraction and exponent."""
        cse, keys = V.kernel.cse, (f"frexp({x})[0]", f"frexp({x})[1]")
        if cse.try_get(keys[0]) is None:
            fraction, exponent = cse.newvar(dtype=torch.float32), cse.newvar(dtype=torch.int32)
            V.kernel.compute.writelines(
                [
                    f"int {exponent};",
                    f"float {fraction} = metal::frexp(static_cast<float>({x}), {exponent});",
                ]
            )
            for key, variable in zip(keys, (fraction, exponent), strict=True):
                cse.put(key, variable)
        return cse.get(keys[0]), cse.get(keys[1])

    @staticmethod
    def remainder(a: Any, b: Any) -> str:
        """Return the remainder of a division that rounds down."""
        if _is_real(a) or _is_real(b):
            return f"menagerie::remainder({a}, {b})"
        return _divided("kRemainder", a, b)

    @staticmethod
    def logical_xor(a: CSEVariable, b: CSEVariable) -> str:
        """Return whether exactly one of two numbers is nonzero."""
        return f"(static_cast<bool>({a}) != static_cast<bool>({b}))"


def _fits_int(index: sympy.Expr) -> bool:
    """Return whether all parts of an index fit into 32 bits, even at the largest sizes."""
    whole, sizes = V.graph.sizevars.remove_precomputed_replacements, V.graph.sizevars.shape_env
    ranges = dict(sizes.var_to_range)
    for place, length in V.kernel.var_ranges().items():
        ranges[place] = ValueRanges(0, bound_sympy(whole(length), ranges).upper)
    parts = [x for x in sympy.preorder_traversal(whole(index)) if getattr(x, "is_integer", False)]
    bounds = [bound_sympy(part, ranges) for part in parts]
    return all(_INT32.min <= each.lower and each.upper <= _INT32.max for each in bounds)


def _divided(division: str, a: Any, b: Any) -> str:
    """Return an integer division, which fails the run if it divides by zero."""
    kind = _common_type(a, b)
    operands = f"static_cast<{kind}>({a}), static_cast<{kind}>({b})"
    if not (b.bounds.is_singleton() and b.bounds.lower != 0):
        fault = V.kernel.fault(f"an integer is divided by zero: {fault_place()}")
        operands += f", fault, {fault}"
    return f"menagerie::divided<menagerie::Division::{division}>({operands})"


@dataclass(frozen=True)
class MetalCode:
    """A program's wrapper, from which both its libraries are compiled, and its shaders.

    `shaders` is empty for a program without generated kernels.
    """

    wrapper: str
    shaders: str
    kernels: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """The wrapper's digest."""
        return hashlib.sha256(self.wrapper.encode()).hexdigest()


class _NoDriver(MPSDeviceOpOverrides):
    """Metal without an ATen header."""

    def kernel_driver(self) -> str:
        return ""


class MetalWrapper(CheckedWrapper, CppWrapperMps):
    """Launches each kernel of one shader library with every step checked; see metal_codegen.h.

    `of` makes a class for a program, whose name its kernels' names start with.
    """

    headers = (*CheckedWrapper.headers, "metal_codegen.h")
    program: ClassVar[str]

    @classmethod
    def of(cls, program: str) -> type[MetalWrapper]:
        """Return the wrapper's class for a program."""
        return type("ProgramWrapper", (cls,), {"program": program})

    def __init__(self) -> None:
        self.shaders: dict[str, str] = {}  # text by kernel
        self.faults: tuple[str, ...] = ()  # of the kernel being called
        super().__init__()

    def write_header(self) -> None:
        """Write torch's includes and ours."""
        self.device_codegen = _NoDriver()
        super().write_header()

    def shader(self, source: str, place: str) -> str:
        """Return the name of the kernel with this source; add the kernel if it is new.

        Compilers' messages name `place`.
        """
        known = {text.partition("\n")[2]: name for name, text in self.shaders.items()}
        name = known.get(source, f"{self.program}_mps_lib_{len(self.shaders)}")
        self.shaders.setdefault(name, f"#line 1 {quoted(place)}\n{source}")
        return name

    def generate_kernel_call(
        self, kernel_name: str, call_args: Any, *, arg_types: Any = None, **keywords: Any
    ) -> None:
        """Write a launch; a kernel with checks takes their buffer as its last argument."""
        if faults := self.faults:  # the grid and the group come last
            place = f"fault_of({{{', '.join(quoted(each) for each in faults)}}})"
            call_args = [*call_args[:-2], place, *call_args[-2:]]
            arg_types = [*arg_types[:-2], torch.int32, *arg_types[-2:]]
        # Computed sizes are written out, since each graph of a loop reuses the same names.
        computed = {
            str(size): f"{'' if value.is_integer else 'bits_of'}({self.codegen_sizevar(value)})"
            for size, value in V.graph.sizevars.inv_precomputed_replacements.items()
        }
        call_args = [computed.get(each, each) for each in call_args]
        super().generate_kernel_call(kernel_name, call_args, arg_types=arg_types, **keywords)

    def codegen_additional_funcs(self) -> None:
        """Write a function for each kernel that returns its handle."""
        for name in self.shaders:
            self.prefix.splice(f"""
AOTIMetalKernelFunctionHandle get_{name}_handle() {{
    static const auto handle = program_shaders().kernel("{name}");
    return handle;
}}
""")

    def write_mps_kernel_call(self, name: str, call_args: Sequence[str]) -> None:
        """Write one launch; `call_args` are the statements that set its arguments and size."""
        write: Callable[[str], None] = self.writeline
        write(f"run_kernel(get_{name}_handle(), [&](AOTIMetalKernelFunctionHandle handle) {{")
        for statement in ("aoti_torch_mps_start_encoding(handle);", *call_args):
            call = statement.strip()
            if call.startswith("aoti_torch_"):
                call = f"AOTI_TORCH_ERROR_CODE_CHECK({call.removesuffix(';')});"
            write(f"    {call}")
        write("});")


_WHOLE = (torch.int32, torch.int64)  # dtypes of integer sums


class _Kernel(mps.MetalKernel):
    """A shader whose checks report faults; headers that all share are stored once per bundle."""

    overrides = MetalFunctions

    def __init__(self, *args: Any, **keywords: Any) -> None:
        self.faults: list[str] = []  # messages of its checks
        self.multistage_reduction_entry = []  # torch shares one list, even with failed kernels
        super().__init__(*args, **keywords)

    def fault(self, message: str) -> int:
        """Return the number, from 1, that a check writes when it fails."""
        if message not in self.faults:
            self.faults.append(message)
        return self.faults.index(message) + 1

    def check_bounds(self, expr: sympy.Expr, size: sympy.Expr, lower: bool, upper: bool) -> None:
        """Report an index out of range, then continue with 0: others may wait for this thread."""
        if not (lower or upper):
            return
        index, end = (self.index_to_str(self.prepare_indexing(each)) for each in (expr, size))
        number = self.fault(f"{OUTSIDE}: {fault_place()}")
        outside = [f"{index} < 0"] * lower + [f"{index} >= {end}"] * upper
        instead = f"{index} = 0" if index.isidentifier() else "return"
        check = f"if ({' || '.join(outside)}) {{ *fault = {number}; {instead}; }}"
        self.cse.generate(self.compute, check, assignment=False)

    def store(self, name: str, index: sympy.Expr, value: CSEVariable, mode: Any = None) -> None:
        """Write state after a row's sum only when all threads of the group have read it."""
        grouped = any(tree.prefix.startswith("r") for tree in self.range_trees)
        if grouped and not self.inside_reduction and name in V.graph.scheduler.mutation_real_name:
            self.stores.writeline("threadgroup_barrier(metal::mem_flags::mem_device);")
        super().store(name, index, value, mode)

    def device_assert_async(self, cond: CSEVariable, msg: str) -> None:
        """Report an assertion of the model that does not hold."""
        number = self.fault(f"{msg}: {fault_place()}")
        self.cse.generate(self.compute, f"if (!{cond}) *fault = {number}", assignment=False)

    def _reduction_nocache(
        self, dtype: torch.dtype, src_dtype: torch.dtype, reduction_type: Any, value: Any
    ) -> Any:
        """Name a position in a long row by its loop's counter; torch uses part of a split index.

        Cast an integer constant to the sum's dtype, since Metal takes it for an int.
        """
        if reduction_type in {"sum", "prod"} and src_dtype in _WHOLE:
            cast = f"static_cast<{mps.DTYPE_TO_METAL[src_dtype]}>({value})"
            value = self.cse.generate(self.compute, cast, dtype=src_dtype)
        root = next(t for t in self.range_trees if t.prefix.startswith("r"))
        root.full_range().codegen()  # makes a loop, even if no value depends on its position
        counter = SimpleNamespace(is_reduction=True, name=f"{root.prefix}_linear_idx")
        with patch.object(self, "range_tree_nodes", {counter.name: counter}):
            result = super()._reduction_nocache(dtype, src_dtype, reduction_type, value)
        if reduction_type == "any" and isinstance(result, CSEVariable):
            result.dtype = dtype  # torch leaves Metal's type name here
        return result

    def rename_indexing(self, index: Any) -> Any:
        """Make the host compute real numbers of sizes, in double, and round them."""
        if isinstance(index, sympy.Expr):
            parts = {x: V.graph.sizevars.lookup_precomputed_size(x) for x in _parts_of_host(index)}
            index = index.xreplace(parts)
        return super().rename_indexing(index)

    def codegen_kernel(self, name: str = "generated_kernel") -> str:
        with patch.object(mps, "_embed_headers", lambda *_: ""):
            text: str = super().codegen_kernel(name)
        computed = V.graph.sizevars.inv_precomputed_replacements
        for size, inner in self.args.sizevars.items():
            if not computed.get(size, size).is_integer:
                text = text.replace(f"constant long& {inner},", f"constant float& {inner},")
        if self.args.output_buffers.keys() & V.graph.scheduler.mutation_real_name.values():
            text = _READ.sub(r"const device \1", text)  # state cannot be in constant memory
        return _POSITION.sub(r"\1device int* fault,\n\1\2", text, count=1) if self.faults else text

    def call_kernel(self, *args: Any, **keywords: Any) -> None:
        wrapper = V.graph.wrapper_code
        if isinstance(wrapper, MetalWrapper):
            wrapper.faults = tuple(self.faults)
        super().call_kernel(*args, **keywords)


def _parts_of_host(index: Any) -> set[sympy.Expr]:
    """Return the largest parts that use only sizes, with real arithmetic or Python's %."""
    parts = sympy.preorder_traversal(index)
    if all(getattr(x, "is_integer", True) and not isinstance(x, PythonMod) for x in parts):
        return set()
    if index.free_symbols and all(symbol_is_type(x, _SIZES) for x in index.free_symbols):
        return {index} if isinstance(index, sympy.Expr) else set()
    return set().union(*map(_parts_of_host, index.args))


class MetalScheduling(mps.MetalScheduling):
    """Torch's own generation of shaders, with their text stored beside the wrapper, not in it."""

    kernel_type = _Kernel

    def define_kernel(self, src_code: str, node_schedule: Any, kernel: Any) -> str:  # noqa: ARG002
        """Add a kernel to the program's shaders, and return its name."""
        wrapper = V.graph.wrapper_code
        if not isinstance(wrapper, MetalWrapper):
            raise TypeError("Metal's scheduling is registered without its wrapper")
        parts = [each.node for each in node_schedule if getattr(each, "node", None) is not None]
        origins = [node for part in parts for node in part.get_origins()]
        return wrapper.shader(src_code, located(origins))


def metal_code(
    wrapper: str, shaders: Mapping[str, str], program: str, shaders_path: str
) -> MetalCode:
    """Return the code that Inductor wrote with this module's classes, ready to compile.

    Raise LoweringError if the wrapper differs from what torch's pinned version writes.
    """
    place = f"program {program}"
    text = "\n".join(_shader(place, name, source) for name, source in shaders.items())
    portable = _LITERAL.sub(r"INT64_C(\1)", wrapper)  # on macOS int64_t is another type
    if left := [word for word in _FOREIGN if word in portable]:
        raise not_the_pinned(place, f"{left[0]!r} where none was expected")
    source = f"{SHADER_SCHEME}:{shaders_path}:{hashlib.sha256(text.encode()).hexdigest()}"
    head = f'#define MENAGERIE_SHADERS "{source}"\n' if shaders else ""
    return MetalCode(head + portable, text, tuple(shaders))


def _shader(place: str, name: str, source: str) -> str:
    line, _, text = source.strip().partition("\n")
    known = text.startswith(_BEGIN) and text.endswith(_END) and text.count(_KERNEL_NAME) == 1
    if not known or "#include" in text:
        raise not_the_pinned(place, f"shader {name} is not one kernel without headers")
    bare = text.removeprefix(_BEGIN).removesuffix(_END)
    named = bare.replace(_KERNEL_NAME, f"kernel void {name}(")
    return f"{line}\n{textwrap.dedent(named.lstrip(chr(10))).strip()}\n"
