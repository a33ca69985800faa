"""What a program keeps between calls: the buffers that it writes."""

from __future__ import annotations

import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from zoo.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch.export import ExportedProgram


class FirstState:
    """The buffers of a module as they are now, to be put back after calls that write them.

    Args:
        module: any; its parameters are not looked at.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._saved = [
            (owner, name, tensor, tensor.detach().clone())
            for owner, name, tensor in _buffers(module)
            if tensor is not None
        ]

    def restore(self) -> None:
        """Give every buffer its tensor again, and that its values."""
        with torch.no_grad():
            for owner, name, tensor, values in self._saved:
                owner._buffers[name] = tensor
                tensor.copy_(values)


def _buffers(
    module: torch.nn.Module,
) -> list[tuple[torch.nn.Module, str, torch.Tensor | None]]:
    return [(o, name, tensor) for o in module.modules() for name, tensor in o._buffers.items()]


@contextmanager
def assigned_in_place(module: torch.nn.Module) -> Iterator[None]:
    """Inside the block, what forward assigns to a buffer is copied into it when forward ends.

    torch.export of this version forgets a new tensor that a submodule's buffer is assigned
    (`self.cache = new`), without a word; it knows writes in place (`self.cache.copy_(new)`).
    """
    forward, own = module.forward, module.__dict__.get("forward")

    @functools.wraps(forward)
    def keeping(*arguments: Any, **keywords: Any) -> Any:
        before = _buffers(module)
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


def from_first_state(
    module: torch.nn.Module, call: Callable[..., Mapping[str, torch.Tensor]]
) -> Callable[..., dict[str, torch.Tensor]]:
    """A call of a module as the first after a reset, whatever was called before.

    Args:
        module: whose buffers the call writes, as they are at first.
        call: gives tensors by name.
    """
    first = FirstState(module)

    def run(*arguments: object) -> dict[str, torch.Tensor]:
        first.restore()
        try:
            return {name: value.clone() for name, value in call(*arguments).items()}
        finally:
            first.restore()

    return run
