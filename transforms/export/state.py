"""How a module is called by names, and what it keeps between calls: the buffers that it writes."""

from __future__ import annotations

import functools
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from zoo.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch.export import ExportedProgram

    Call = Callable[[Mapping[str, torch.Tensor]], dict[str, torch.Tensor]]


@dataclass(frozen=True)
class Eager:
    """A program as eager PyTorch runs it: called with tensors by name, it gives tensors by name.

    Attributes:
        module: in eval mode.
        arguments: what its forward takes by position and by keyword, of tensors by name.
        results: outputs by name, of what forward returns.
    """

    module: torch.nn.Module
    arguments: Callable[[Mapping[str, torch.Tensor]], tuple[tuple[Any, ...], dict[str, Any]]]
    results: Callable[[Any], dict[str, torch.Tensor]]

    def __call__(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """One call; what it writes, stays written."""
        arguments, keywords = self.arguments(inputs)
        return self.results(self.module(*arguments, **keywords))

    def from_first_state(self) -> Call:
        """Calls one after another from the module's buffers on, which stay as they are."""
        buffers = {n: value.detach().clone() for n, value in self.module.named_buffers()}

        def call(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return self.results(
                torch.func.functional_call(self.module, buffers, *self.arguments(inputs))
            )

        return call

    def first(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The first call after a reset, whatever was called before."""
        return self.from_first_state()(inputs)


@contextmanager
def assigned_in_place(module: torch.nn.Module) -> Iterator[None]:
    """Inside the block, what forward assigns to a buffer is copied into it when forward ends.

    torch.export of this version forgets a new tensor that a submodule's buffer is assigned
    (`self.cache = new`), without a word; it knows writes in place (`self.cache.copy_(new)`).
    """
    forward, own = module.forward, module.__dict__.get("forward")

    @functools.wraps(forward)
    def keeping(*arguments: Any, **keywords: Any) -> Any:
        before = [(o, n, tensor) for o in module.modules() for n, tensor in o._buffers.items()]
        result = forward(*arguments, **keywords)
        assigned = [(o, n, old, o._buffers.get(n)) for o, n, old in before]
        changed = [(o, n, old, new) for o, n, old, new in assigned if new is not old]
        values = []
        for _, name, old, new in changed:  # read before any is written: two may be exchanged
            if old is None or new is None:
                fact = f"buffer {name!r} is assigned {'nothing' if new is None else 'a tensor'}"
                raise ExportError("state", fact, "Register it with the shape that it keeps")
            values.append(new.clone())
        for (owner, name, old, _), value in zip(changed, values, strict=True):
            if old is not None:
                old.copy_(value)
                owner._buffers[name] = old
        return result

    module.forward = keeping
    try:
        yield
    finally:
        if own is None:
            del module.__dict__["forward"]
        else:
            module.forward = own


def state_of(program: ExportedProgram) -> tuple[str, ...]:
    """The names of the buffers that a call of a program writes, each once."""
    return tuple(dict.fromkeys(program.graph_signature.buffers_to_mutate.values()))


def with_own_state(program: ExportedProgram) -> ExportedProgram:
    """The same program, its state no longer the tensors that the module has and writes."""
    for name in state_of(program):
        holder = program.state_dict if name in program.state_dict else program.constants
        holder[name] = holder[name].detach().clone()
    return program
