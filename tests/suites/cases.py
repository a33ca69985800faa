"""PyTorch's own tables of modules and operators as cases: `module_db` and `op_db`, by name.

A case is an operator, or a module, with a dtype. Its samples are inputs that PyTorch tests it with,
in the order of what each adds: other arguments first, then other shapes, then other layouts.
"""

from __future__ import annotations

import copyreg
import itertools
import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


def _of_torch(name: str) -> Any:
    return getattr(torch, name)


# torch pickles neither, and samples go to other processes.
for _kind_of_value in (torch.memory_format, torch.layout):
    copyreg.pickle(_kind_of_value, lambda v: (_of_torch, (str(v).removeprefix("torch."),)))

# How many samples of a case are proven, by dtype.
SAMPLES = {
    torch.float32: 6,
    torch.float16: 2,
    torch.bfloat16: 2,
    torch.int64: 3,
    torch.int32: 2,
    torch.int8: 2,
    torch.uint8: 2,
    torch.bool: 2,
}
_LOOKED_AT = 300  # inputs of a case, of which the samples are chosen
_MOST_NUMBERS = 100_000  # of all inputs of a sample


@dataclass(frozen=True)
class Call:
    """A function and its arguments: tensors are inputs of the program, the rest is fixed.

    Attributes:
        function: the operator, or a module in eval mode.
        arguments: positional ones and those by name, as pytree flattens them.
        structure: of the arguments.
        writes: whether it writes into its tensors, and so gets copies: those of a program are read.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    structure: pytree.TreeSpec
    writes: bool = False

    @classmethod
    def of(
        cls, function: Callable[..., Any], arguments: Sequence[Any], named: dict[str, Any]
    ) -> Call:
        """A call as Python has it."""
        flat, structure = pytree.tree_flatten((tuple(arguments), named))
        return cls(function, tuple(flat), structure)

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Its inputs, in order."""
        return tuple(a for a in self.arguments if isinstance(a, torch.Tensor))

    def run(self, tensors: Iterable[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The results that are tensors, computed from other tensors of the same kind."""
        given = (t.clone() for t in tensors) if self.writes else iter(tensors)
        flat = [next(given) if isinstance(a, torch.Tensor) else a for a in self.arguments]
        arguments, named = pytree.tree_unflatten(flat, self.structure)
        results = pytree.tree_leaves(self.function(*arguments, **named))
        return tuple(r for r in results if isinstance(r, torch.Tensor))


@dataclass(frozen=True)
class Operator:
    """An operator by its name in `op_db`: so a call can go to another process."""

    name: str

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call it."""
        return _operators_by_name()[self.name](*arguments, **named)


@cache
def _operators_by_name() -> dict[str, Callable[..., Any]]:
    return {info.full_name: info.op for info in op_db}


@dataclass(frozen=True)
class Case:
    """An operator or a module with a dtype, e.g. `op_db/add/float32`."""

    name: str
    dtype: torch.dtype
    make: Callable[[], Iterator[Call]]

    @property
    def budget(self) -> int:
        """How many samples are to be proven."""
        return SAMPLES[self.dtype]

    def calls(self) -> Iterator[Call]:
        """Its samples, the one that adds most to those before it first; the same in every process.

        What PyTorch's generator raises on the way ends the list.
        """
        torch.manual_seed(0)
        calls: list[Call] = []
        made = itertools.islice(self.make(), _LOOKED_AT)
        while True:
            try:
                call = next(made, None)
            except Exception:
                if not calls:
                    raise
                call = None
            if call is None:
                return ranked(calls)
            calls.append(call)


def ranked(calls: Sequence[Call]) -> Iterator[Call]:
    """Calls by what each adds: arguments weigh more than shapes, these more than layouts."""
    left = {position: _traits(call) for position, call in enumerate(calls)}
    seen: set[tuple[Any, ...]] = set()
    while left:
        new = {p: sum(w for t, w in traits.items() if t not in seen) for p, traits in left.items()}
        best = max(new, key=lambda position: (new[position], -position))
        seen.update(left.pop(best))
        yield calls[best]


def _traits(call: Call) -> dict[tuple[Any, ...], int]:
    """The properties by which a call may differ from others, with their weights."""
    places = pytree.tree_unflatten(range(len(call.arguments)), call.structure)
    paths = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(places)[0]]
    pairs = list(zip(paths, call.arguments, strict=True))
    fixed = {("argument", p, _kind(a)): 8 for p, a in pairs if not isinstance(a, torch.Tensor)}
    if isinstance(call.function, torch.nn.Module):  # its constructor's arguments
        fixed["module", repr(call.function), len(call.function.state_dict())] = 8
    tensors = call.tensors
    return {
        **fixed,
        ("given", *paths): 8,
        ("dtypes", *(t.dtype for t in tensors)): 4,
        ("axes", *(t.dim() for t in tensors)): 2,
        ("empty", any(not t.numel() for t in tensors)): 2,
        ("shapes", *(t.shape for t in tensors)): 2,
        ("layouts", *(_layout(t) for t in tensors)): 1,
    }


def _kind(value: Any) -> str:
    """A number that is drawn by chance is like others of its sign."""
    if not isinstance(value, float) or value.is_integer():
        return repr(value)
    return f"float {value > 0}" if math.isfinite(value) else str(value)


def _layout(tensor: torch.Tensor) -> str:
    if tensor.layout is not torch.strided:
        return str(tensor.layout)
    return "plain" if tensor.is_contiguous() else "expanded" if 0 in tensor.stride() else "strided"


class _Part(torch.nn.Module):
    """One call of a program: a module, so that errors name it."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.call = call
        self.held = call.function if isinstance(call.function, torch.nn.Module) else None

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(_with_an_element(result) for result in self.call.run(tensors))


class Together(torch.nn.Module):
    """Several calls as one program, which calls them `call_0`, `call_1`, ..."""

    def __init__(self, calls: Sequence[Call]) -> None:
        super().__init__()
        self.calls = calls
        for number, call in enumerate(calls):
            self.add_module(f"call_{number}", _Part(call))

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The results of all calls, one after another."""
        given = iter(tensors)
        results: list[torch.Tensor] = []
        for call, part in zip(self.calls, self.children(), strict=True):
            results += part(*itertools.islice(given, len(call.tensors)))
        return tuple(results)

    @property
    def inputs(self) -> tuple[torch.Tensor, ...]:
        """The tensors of all calls."""
        return tuple(t for call in self.calls for t in call.tensors)

    def names(self) -> dict[str, list[str]]:
        """Names of inputs and outputs, which begin with the call's."""
        with torch.no_grad():
            counts = [(len(c.tensors), len(c.run(c.tensors))) for c in self.calls]
        return {
            kind: [f"call_{n}_{kind}_{k}" for n, c in enumerate(counts) for k in range(c[which])]
            for which, kind in enumerate(("inputs", "outputs"))
        }


def _with_an_element(result: torch.Tensor) -> torch.Tensor:
    """An empty result with a one behind it: an output without elements proves nothing."""
    if isinstance(result.numel(), torch.SymInt) or result.numel():
        return result
    return torch.cat([result.flatten(), result.new_ones(1)])


@cache
def cases() -> dict[str, Case]:
    """Every case by name, operators first."""
    return {case.name: case for case in (*_operators(), *_modules())}


def _operators() -> Iterator[Case]:
    for info in op_db:
        for dtype in SAMPLES:
            if dtype in info.supported_dtypes("cpu"):
                name = f"op_db/{info.full_name}/{str(dtype).removeprefix('torch.')}"
                yield Case(name, dtype, lambda info=info, dtype=dtype: _samples(info, dtype))  # type: ignore[misc]


def _samples(info: Any, dtype: torch.dtype) -> Iterator[Call]:
    """What PyTorch compares with references (layouts, edges); what it samples where that is big."""
    small = False
    for make in (info.reference_inputs, info.sample_inputs):
        for sample in make("cpu", dtype, requires_grad=False) if not small else ():
            call = Call.of(Operator(info.full_name), (sample.input, *sample.args), sample.kwargs)
            if sum(t.numel() for t in call.tensors) <= _MOST_NUMBERS:
                small = True
                yield call


def _modules() -> Iterator[Case]:
    for info in module_db:
        for dtype in SAMPLES:
            if dtype in info.dtypes:
                name = f"module_db/{info.name}/{str(dtype).removeprefix('torch.')}"
                yield Case(name, dtype, lambda info=info, dtype=dtype: _module_calls(info, dtype))  # type: ignore[misc]


def _module_calls(info: Any, dtype: torch.dtype) -> Iterator[Call]:
    given = {"device": "cpu", "dtype": dtype, "requires_grad": False, "training": False}
    for sample in info.module_inputs_func(info, **given):
        if sample.forward_input is None:
            continue
        made, called = sample.constructor_input, sample.forward_input
        module = info.module_cls(*made.args, **made.kwargs).eval()
        if info.is_lazy:  # its first call makes the parameters
            module(*called.args, **called.kwargs)
        yield Call.of(module.requires_grad_(False), called.args, called.kwargs)
