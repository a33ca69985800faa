"""Refuse what no target can run, by name, right after the export and all at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from transforms.graph.call_signature import DTYPES
from transforms.graph.record import origin
from transforms.graph.schemas import is_random, producers, schema_of, tensors_of
from zoo.errors import ExportError

_OF_STATE = {OutputKind.PARAMETER_MUTATION: "parameter", OutputKind.USER_INPUT_MUTATION: "input"}
_ADVICE = {
    "parameter": "Write into a copy, or call .eval() on the module first",
    "input": "Write into a copy (.clone()) and return it",
}
_NO_STATE = "only buffers keep state between calls"
_TRAINING = "by a module in training mode. Call .eval() first: what a call writes then is kept"
_NO_NOISE = "Pass the noise as an input; for dropout, call .eval() on the module first"
_NO_NUMBER = "Compute with the tensor, or make a constant a Python number in __init__"
_NO_DATA = "Pad to a fixed size, return a mask, or read n elements as x[i + torch.arange(n)]"


def refuse_unsupported(
    place: str, program: ExportedProgram, module: torch.nn.Module | None = None
) -> None:
    """Raise ExportError if a program, in inference form, needs what no target has.

    The error lists, with module path and source line: parameters and inputs that are written, and
    buffers written by modules in training mode (of `module`, if the program was exported from one);
    random numbers; sizes and values read from tensors; dtypes that artifacts do not support; inputs
    and results that are not tensors.
    """
    nodes = {node.name: node for node in program.graph.nodes}
    used = _used(program)
    faults = [
        *_no_tensors(program, nodes),
        *_written(program, nodes),
        *_written_in_training(program, nodes, module),
        *_kept_as_complex(program, nodes),
        *_sparse(program, used),
        *_random(used),
        *_shaped_by_data(used),
    ]
    if faults:
        raise ExportError(place, "\n  ".join(dict.fromkeys(["cannot be converted", *faults])))


def _used(program: ExportedProgram) -> list[Node]:
    """Return the nodes on which returned or written values depend, in graph order."""
    found = producers(program.graph.output_node())
    return [n for n in program.graph.nodes if n in found]


def _no_tensors(program: ExportedProgram, nodes: dict[str, Node]) -> Iterator[str]:
    signature = program.graph_signature
    for kind, names in (("input", signature.user_inputs), ("output", signature.user_outputs)):
        if kind == "output" and not names:
            yield "it returns nothing. Return at least one tensor"
        for position, name in enumerate(names):
            node = nodes.get(name) if isinstance(name, str) else None
            yield from _no_tensor(f"{kind} {position}", name, node)


def _no_tensor(what: str, name: Any, node: Node | None) -> Iterator[str]:
    if node is None:
        yield f"{what} is {name!r}, not a tensor. Leave it out"
        return
    value = node.meta.get("val")
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        yield f"{what} is a size or another number, not a tensor. Leave it out"
        return
    where = origin(node) if node.op == "call_function" else node.name
    if not isinstance(value, torch.Tensor):
        yield f"{what} is a {type(value).__name__}, not a tensor: {where}. Leave it out"
    elif value.dtype not in DTYPES:
        step = ", e.g. torch.view_as_real(x)" if value.dtype.is_complex else ""
        fact = f"{what} is of {value.dtype}, which artifacts do not know"
        yield f"{fact}: {where}. Convert it{step}"


def _written(program: ExportedProgram, nodes: dict[str, Node]) -> Iterator[str]:
    for spec in program.graph_signature.output_specs:
        what = _OF_STATE.get(spec.kind)
        if what is not None:
            site = origin(nodes[spec.arg.name])
            yield f"{what} {spec.target!r} is written by {site}: {_NO_STATE}. {_ADVICE[what]}"


def _written_in_training(
    program: ExportedProgram, nodes: dict[str, Node], module: torch.nn.Module | None
) -> Iterator[str]:
    """Yield buffers that a module in training mode writes, such as batch statistics."""
    if module is None:
        return
    for node, name in program.graph_signature.buffers_to_mutate.items():
        if module.get_submodule(name.rpartition(".")[0]).training:
            yield f"buffer {name!r} is written by {origin(nodes[node])}, {_TRAINING}"


def _kept_as_complex(program: ExportedProgram, nodes: dict[str, Node]) -> Iterator[str]:
    for node, name in program.graph_signature.buffers_to_mutate.items():
        [tensor] = tensors_of(nodes[node])
        if tensor.dtype.is_complex:
            fact = f"buffer {name!r} of {tensor.dtype} is written by {origin(nodes[node])}"
            yield f"{fact}: state is real. Keep torch.view_as_real of it"


def _sparse(program: ExportedProgram, used: Iterable[Node]) -> Iterator[str]:
    signature = program.graph_signature
    held = {**signature.inputs_to_buffers, **signature.inputs_to_parameters}
    for node in used:
        kinds = [t.layout for t in tensors_of(node) if t.layout is not torch.strided]
        if kinds:
            where = origin(node) if node.op == "call_function" else held.get(node.name, node.name)
            yield f"a tensor is {kinds[0]}: {where}. Use dense tensors: .to_dense()"


def _random(used: Iterable[Node]) -> Iterator[str]:
    for node in used:
        tags = getattr(node.target, "tags", ())
        drawn = torch.Tag.nondeterministic_seeded in tags and schema_of(node.target) is not None
        if node.op == "call_function" and drawn and is_random(node):
            yield f"random numbers are drawn by {origin(node)}. {_NO_NOISE}"


def _shaped_by_data(used: Iterable[Node]) -> Iterator[str]:
    for node in used:
        if not node.meta.get("unbacked_bindings"):
            continue
        if any(free_unbacked_symbols(tensor) for tensor in tensors_of(node)):
            yield f"a size depends on values of a tensor at {origin(node)}. {_NO_DATA}"
        else:
            yield f"a number is read out of a tensor at {origin(node)}. {_NO_NUMBER}"
