"""A program as a PyTorch engineer has it: a module, what it is called with, its dynamic sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves, tree_unflatten

from transforms.export.dynamic_sizes import named_sizes
from transforms.export.prepare import Prepared
from transforms.export.signature import output_names, signature_of
from transforms.export.state import FirstState, from_first_state, state_of
from transforms.export.trace import Exported, trace, with_plain_inputs, without_fast_path
from transforms.goldens.exact import exact_outputs
from transforms.goldens.examples import example_goldens
from zoo.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_CALLS = 64
_FLAT = "Wrap the module in one that takes tensors, by position or by name"


@dataclass(frozen=True)
class Program:
    """One program of a bundle, in torch.export's own terms.

    Attributes:
        module: in eval mode; or a program that is exported already.
        inputs: example tensors by position, on the CPU; a mapping is taken as `kwargs`. Left out:
            those that an exported program has of its own.
        kwargs: example tensors by name.
        dynamic_shapes: as torch.export has it; every range needs a largest size.
        names: `{"inputs": [...], "outputs": [...]}` in the graph's order; left out: what forward
            calls its inputs, and the result's keys, or `output` and its positions.
        calls: of a module that keeps state in buffers: how many calls, one after another, each
            golden case is, from the buffers as they are now. The first takes `inputs`.
        calibration: for the precision `int8-static`: samples, each the inputs of a call in the
            graph's order, positions before names.
    """

    module: torch.nn.Module | ExportedProgram
    inputs: Sequence[torch.Tensor] | Mapping[str, torch.Tensor] = ()
    kwargs: Mapping[str, torch.Tensor] = field(default_factory=dict)
    dynamic_shapes: Any = None
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    calls: int = field(default=4, kw_only=True)
    calibration: Sequence[Sequence[torch.Tensor]] = field(default=(), kw_only=True)


@without_fast_path()
def prepare_own(name: str, program: Program) -> Prepared:
    """Export a program and make its golden cases; see `example_goldens` for these.

    Args:
        name: the program's name in the bundle.
        program: what to export.

    Raises:
        UsageError: inputs or names are not what a bundle can have.
        ExportError: torch.export or eager fails, or the program needs what no target has.
    """
    place = f"program {name}"
    if not isinstance(program.calls, int) or not 1 <= program.calls <= _MOST_CALLS:
        fact = f"its golden cases cannot be {program.calls!r} calls"
        raise UsageError(place, fact, f"Give `calls` from 1 to {_MOST_CALLS}")
    arguments, keywords = _example(place, program)
    module = program.module
    if isinstance(module, ExportedProgram):
        module = with_plain_inputs(module)
    exported = trace(place, module, arguments, keywords, program.dynamic_shapes)
    call = _Call(place, exported)
    inputs = _names(place, program.names, "inputs", call.names)
    outputs = _names(place, program.names, "outputs", output_names(exported))
    shapes, dimensions = named_sizes(place, exported, call.names, program.dynamic_shapes)
    renamed = dict(zip(inputs, shapes.values(), strict=True))
    signature = signature_of(exported, renamed, outputs, dimensions)
    example = dict(zip(inputs, call.flat(arguments, keywords), strict=True))
    original = _original(module)
    eager = _eager(original, call, outputs)
    if not state_of(exported):
        goldens = example_goldens(place, signature, example, eager)
        exact = exact_outputs(original, goldens, lambda wide: _eager(wide, call, outputs))
        return Prepared(name, Exported(exported, signature), goldens, eager, exact=exact)
    first = FirstState(original)
    goldens = example_goldens(
        place, signature, example, eager, calls=program.calls, restore=first.restore
    )
    again = from_first_state(original, eager)
    return Prepared(name, Exported(exported, signature), goldens, again, program.calls)


def _original(module: torch.nn.Module | ExportedProgram) -> torch.nn.Module:
    if isinstance(module, ExportedProgram):
        return module.module(check_guards=False)
    return module


def _eager(
    original: torch.nn.Module, call: _Call, outputs: Sequence[str]
) -> Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]:
    def eager(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        arguments, keywords = call.arguments(list(inputs.values()))
        return dict(zip(outputs, tree_leaves(original(*arguments, **keywords)), strict=True))

    return eager


class _Call:
    """How positions in a program's graph and the arguments of its call belong together."""

    def __init__(self, place: str, program: ExportedProgram) -> None:
        self._place = place
        self._spec = program.call_spec.in_spec
        self.names = tuple(str(name) for name in program.graph_signature.user_inputs)

    def arguments(self, tensors: Sequence[torch.Tensor]) -> tuple[list[Any], dict[str, Any]]:
        """What to call the module with, of tensors in the graph's order."""
        arguments, keywords = tree_unflatten(list(tensors), self._spec)
        return list(arguments), dict(keywords)

    def flat(
        self, arguments: Sequence[torch.Tensor], keywords: Mapping[str, torch.Tensor]
    ) -> list[torch.Tensor]:
        """Tensors in the graph's order, of what the module is called with.

        Raises:
            UsageError: the program was exported with other arguments.
        """
        slots, named = self.arguments(range(len(self.names)))  # type: ignore[arg-type]
        if len(slots) != len(arguments) or named.keys() != keywords.keys():
            wanted = f"{len(slots)} by position" + "".join(f", {name}=" for name in named)
            raise UsageError(
                self._place,
                f"was exported with {wanted}",
                "Give its inputs in the same way",
            )
        pairs = [*zip(slots, arguments, strict=True), *((named[n], keywords[n]) for n in named)]
        return [tensor for _, tensor in sorted(pairs, key=lambda pair: pair[0])]


def _example(
    place: str, program: Program
) -> tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
    """The tensors to call the program with, laid out as they were given.

    Raises:
        UsageError: there are none, or other things among them.
    """
    arguments: Any = program.inputs
    keywords: dict[str, Any] = dict(program.kwargs)
    if isinstance(arguments, torch.Tensor):
        raise UsageError(place, "its inputs are a tensor", "Give a tuple of tensors: (x,)")
    if isinstance(arguments, Mapping):
        arguments, keywords = (), {**arguments, **keywords}
    if not arguments and not keywords and isinstance(program.module, ExportedProgram):
        arguments, keywords = program.module.example_inputs or ((), {})
    for what, value in [*((f"input {i}", v) for i, v in enumerate(arguments)), *keywords.items()]:
        if not isinstance(value, torch.Tensor):
            raise UsageError(place, f"{what} is a {type(value).__name__}, not a tensor", _FLAT)
        if value.device.type != "cpu":
            raise UsageError(
                place, f"{what} is on {value.device}", "Move it, and the module: .cpu()"
            )
    if not arguments and not keywords:
        raise UsageError(place, "there are no inputs to call it with", "Give example tensors")
    return tuple(arguments), keywords


def _names(
    place: str, wanted: Mapping[str, Sequence[str]], kind: str, own: Sequence[str]
) -> tuple[str, ...]:
    """The names that the user wants, else the program's own; each once.

    Raises:
        UsageError: there are too many or too few, or one comes twice.
    """
    if strange := sorted(set(wanted) - {"inputs", "outputs"}):
        raise UsageError(place, f"names has {strange[0]!r}", 'It holds "inputs" and "outputs"')
    names = tuple(wanted.get(kind) or own)
    if len(names) != len(own) or len(set(names)) != len(names):
        fact = f"has {len(own)} {kind} ({', '.join(own)}), but the names are {', '.join(names)}"
        raise UsageError(place, fact, "Name each of them, once")
    return names
