"""PyTorch's own tables of modules and operators as cases: `module_db` and `op_db`, by name.

A case is an operator, or a module, with a dtype; its calls are a few of the inputs that PyTorch
tests it with, layouts and edges among them. Several cases can share a program.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_DTYPES = (torch.float32, torch.int64, torch.bool)
_CALLS = 6  # of a case
_LOOKED_AT = 300  # inputs of a case, of which the calls are chosen
_MOST_NUMBERS = 100_000  # of all inputs of a call


@dataclass(frozen=True)
class Call:
    """A function and what it is called with: tensors are inputs of the program, the rest is fixed.

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

    def is_fit(self) -> bool:
        """Whether it can be proven: tensors, nothing complex, and no result of NaNs alone."""
        given = [a for a in self.arguments if isinstance(a, complex | torch.Tensor)]
        if not self.tensors or any(isinstance(a, complex) or a.is_complex() for a in given):
            return False
        with torch.no_grad():
            results = self.run(self.tensors)
        return all(not r.is_complex() and (not r.numel() or r.isfinite().any()) for r in results)

    def run(self, tensors: Iterable[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The results that are tensors, computed from other tensors of the same kind."""
        given = (t.clone() for t in tensors) if self.writes else iter(tensors)
        flat = [next(given) if isinstance(a, torch.Tensor) else a for a in self.arguments]
        arguments, named = pytree.tree_unflatten(flat, self.structure)
        results = pytree.tree_leaves(self.function(*arguments, **named))
        return tuple(r for r in results if isinstance(r, torch.Tensor))


@dataclass(frozen=True)
class Case:
    """An operator or a module with a dtype, e.g. `op_db/add/float32`."""

    name: str
    make: Callable[[], Iterator[Call]]

    def calls(self) -> tuple[Call, ...]:
        """Some of its inputs, spread over all of them; the same ones in every process.

        Those that cannot be proven are left out where there are others.
        """
        torch.manual_seed(0)
        found = itertools.islice(self.make(), _LOOKED_AT)
        fit = [call for call in found if sum(t.numel() for t in call.tensors) <= _MOST_NUMBERS]
        fit = [call for call in fit if call.is_fit()] or fit
        chosen = [fit[len(fit) * i // _CALLS] for i in range(_CALLS)] if fit else []
        calls = list({id(call): call for call in chosen}.values())
        # Where one writes, the others may with other values.
        writes = any(_writes(call) for call in calls)
        return tuple(dataclasses.replace(call, writes=writes) for call in calls)


def _writes(call: Call) -> bool:
    held = [t.clone() for t in call.tensors]
    with torch.no_grad():
        call.run(held)
    # By values: a batch norm in training writes without counting a version.
    pairs = zip(held, call.tensors, strict=True)
    return any(not torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)


class Together(torch.nn.Module):
    """Several calls as one program."""

    def __init__(self, calls: Sequence[Call]) -> None:
        super().__init__()
        self.calls = calls
        modules = {str(i): c.function for i, c in enumerate(calls)}
        self.held = torch.nn.ModuleDict(
            {name: f for name, f in modules.items() if isinstance(f, torch.nn.Module)}
        )

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The results of all calls, one after another."""
        given = iter(tensors)
        results: list[torch.Tensor] = []
        for call in self.calls:
            results += call.run(itertools.islice(given, len(call.tensors)))
        return tuple(_with_an_element(result) for result in results)

    @property
    def inputs(self) -> tuple[torch.Tensor, ...]:
        """The tensors of all calls."""
        return tuple(t for call in self.calls for t in call.tensors)


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
        for dtype in _DTYPES:
            if dtype in info.supported_dtypes("cpu"):
                name = f"op_db/{info.full_name}/{str(dtype).removeprefix('torch.')}"
                yield Case(name, lambda info=info, dtype=dtype: _samples(info, dtype))  # type: ignore[misc]


def _samples(info: Any, dtype: torch.dtype) -> Iterator[Call]:
    """What PyTorch compares with references (layouts, edges), else what it samples."""
    for sample in info.reference_inputs("cpu", dtype, requires_grad=False):
        yield Call.of(info.op, (sample.input, *sample.args), sample.kwargs)


def _modules() -> Iterator[Case]:
    for info in module_db:
        name = f"module_db/{info.name}/float32"
        yield Case(name, lambda info=info: _module_calls(info))  # type: ignore[misc]


def _module_calls(info: Any) -> Iterator[Call]:
    given = {"device": "cpu", "dtype": torch.float32, "requires_grad": False, "training": False}
    for sample in info.module_inputs_func(info, **given):
        if sample.forward_input is None:
            continue
        made, called = sample.constructor_input, sample.forward_input
        module = info.module_cls(*made.args, **made.kwargs).eval().requires_grad_(False)
        yield Call.of(module, called.args, called.kwargs)
