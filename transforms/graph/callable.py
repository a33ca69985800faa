"""A program of a manifest entry's model, as eager PyTorch runs it."""

from __future__ import annotations

import functools
from typing import Any

import torch

from transforms.graph.call_signature import Eager
from transforms.graph.guards import switched_off
from zoo.errors import ExportError
from zoo.sources.random_weights import misfit
from zoo.sources.steps import stepped
from zoo.spec import ProgramSpec

WRAPPER_PREFIX = "model."  # CallableProgram holds the model under this name
_NO_NESTING = "for tensors within one, a model that returns them side by side is needed"


class CallableProgram(torch.nn.Module):
    """One program of a model as a function of tensors: fixed arguments set, outputs selected.

    `model` is the whole model, in eval mode. Raise ExportError if it lacks the part that the spec
    names, or if the part does not take inputs of these names.
    """

    def __init__(self, model: torch.nn.Module, spec: ProgramSpec) -> None:
        super().__init__()
        self._spec = spec
        try:
            self.model = model.get_submodule(spec.part)
        except AttributeError as error:
            children = ", ".join(name for name, _ in model.named_children())
            fact = f"the model has no part {spec.part!r}"
            raise self._error(fact, f"It has: {children}") from error
        names = [*(i.name for i in spec.inputs), *spec.arguments]
        if fault := misfit(self.model.forward, names):
            step = "Name the entry's inputs and arguments so, or choose a `part` that takes them"
            raise self._error(f"cannot be called so: {fault}", step)

    def forward(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Call the part with `inputs`, in the order of the spec; return its tensors by name."""
        named = {i.name: value for i, value in zip(self._spec.inputs, inputs, strict=True)}
        prepared = stepped(named, self._spec.before)
        found = self._pick(self.model(**prepared, **self._spec.arguments))
        return stepped(found, self._spec.after)

    def _pick(self, result: Any) -> dict[str, torch.Tensor]:
        """Return the tensors that the spec names, by position if the results have no names."""
        wanted, by_name = self._spec.outputs, hasattr(result, "keys")
        found: dict[str, Any]
        if isinstance(result, torch.Tensor):
            found = {"output": result}
        elif isinstance(result, (tuple, list)):
            found = {f"output_{position}": value for position, value in enumerate(result)}
        elif by_name:
            found = dict(result.items())
        else:
            raise self._error(f"returns a {type(result).__name__}")
        if by_name and (missing := [name for name in wanted if name not in found]):
            raise self._error(f"its result has no {missing[0]!r}", f"It has: {', '.join(found)}")
        if len(wanted) > len(found):
            named = f"`outputs` names {len(wanted)}: {', '.join(wanted)}"
            step = "List as many under `outputs` as it returns, or fewer"
            raise self._error(f"returns {len(found)} result(s), but {named}", step)
        if wanted:
            values = [found[name] for name in wanted] if by_name else found.values()
            found = dict(zip(wanted, values, strict=False))
        else:  # leave out sizes and None; tensors nested in one of several results are errors
            kept = torch.Tensor if by_name else (torch.Tensor, tuple, list, dict)
            found = {name: value for name, value in found.items() if isinstance(value, kept)}
        if not found:
            raise self._error("returns no tensor")
        for position, (name, value) in enumerate(found.items()):
            if not isinstance(value, torch.Tensor):
                which = f"{position}, {name!r}," if wanted else f"{position}"
                fact = f"its result {which} is a {type(value).__name__}, not a tensor"
                step = f"List under `outputs` only tensors, or those before it; {_NO_NESTING}"
                raise self._error(fact, step)
        return found

    def _error(self, fact: str, next_step: str = "") -> ExportError:
        return ExportError(f"program {self._spec.name}", fact, next_step)


def eager_of(model: torch.nn.Module, spec: ProgramSpec) -> Eager:
    """Return a program of a model; its inputs must be passed in the spec's order."""
    return Eager(CallableProgram(model, spec), lambda given: (tuple(given.values()), {}), dict)


# Make eager's transformer layers compute what export records: their fast path, which export never
# sees, returns zeros where a mask hides tokens.
without_fast_path = functools.partial(
    switched_off, torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled
)
