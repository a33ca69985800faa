"""An ExportedProgram in two files that hold no code, so that a stranger's can be opened.

program.json           the graph in torch's schema, without what only describes it
weights.safetensors    each weight's memory as bytes, named after the graph's input it is

torch's own archive is not used: reading one unpickles example inputs, and weights, constants and
opaque objects wherever its entries ask for it; it loads compiled libraries too.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch._export.serde import schema
from torch._export.serde.serialize import (
    _SERIALIZE_TO_TORCH_DTYPE,
    ExportedProgramDeserializer,
    _bytes_to_dataclass,
    _to_json_bytes,
    serialize,
)
from torch.utils._pytree import tree_structure, treespec_dumps

from transforms.bisect.checked_graph import Unsafe, check_graph

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch.export import ExportedProgram

__all__ = ["GRAPH", "WEIGHTS", "read_program", "write_program"]

GRAPH, WEIGHTS = "program.json", "weights.safetensors"

_MOST_BYTES = 256 << 20  # of the graph


class _Weight(NamedTuple):
    node: str  # the graph's input
    target: str  # its name in the model
    is_parameter: bool
    is_state: bool  # else a constant
    meta: schema.TensorMeta

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(size.as_int for size in self.meta.sizes)

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(stride.as_int for stride in self.meta.strides)


def write_program(program: ExportedProgram, folder: Path) -> None:
    """Write the two files.

    Raises:
        Unsafe: the program holds what they cannot: subgraphs, objects, operators of its own.
    """
    written = serialize(
        program,
        serialize_state_dict=False,
        serialize_constants=False,
        serialize_example_inputs=False,
    )
    graph = _bytes_to_dataclass(schema.ExportedProgram, written.exported_program)
    _strip(graph)
    check_graph(graph)
    values = {**program.constants, **program.state_dict}
    memory = {w.node: _memory(values[w.target], w) for w in _weights(graph)}
    (folder / GRAPH).write_bytes(_to_json_bytes(graph))
    save_file(memory, folder / WEIGHTS)


def read_program(folder: Path) -> ExportedProgram:
    """The program in a folder, with no example inputs; called by position, it returns a tuple.

    Raises:
        Unsafe: the graph could do more than compute.
        OSError: the files cannot be read.
        Exception: they are not what `write_program` writes; torch's many kinds.
    """
    if (folder / GRAPH).stat().st_size > _MOST_BYTES:
        raise Unsafe(f"{GRAPH} is larger than any graph")
    graph = _bytes_to_dataclass(schema.ExportedProgram, (folder / GRAPH).read_bytes())
    check_graph(graph)
    graph.graph_module.module_call_graph = [_call(graph.graph_module.signature)]
    memory = load_file(folder / WEIGHTS)
    state: dict[str, torch.Tensor] = {}
    constants: dict[str, torch.Tensor] = {}
    for weight in _weights(graph):
        (state if weight.is_state else constants)[weight.target] = _tensor(
            memory[weight.node], weight
        )
    program = ExportedProgramDeserializer().deserialize(graph, state, constants, None)
    _drop_unused_results(program)
    return program


def _drop_unused_results(program: ExportedProgram) -> None:
    """The deserialiser picks every result of a call, also those that nobody reads."""
    for node in reversed(program.graph.nodes):
        if node.target is operator.getitem and not node.users:
            program.graph.erase_node(node)
    program.graph_module.recompile()


def _strip(graph: schema.ExportedProgram) -> None:
    """Empty what `check_graph` wants empty: where nodes came from, and how the model is called."""
    module = graph.graph_module
    graph.guards_code = []
    module.metadata, module.treespec_namedtuple_fields, module.module_call_graph = {}, {}, []
    for node in module.graph.nodes:
        node.metadata = {}
        if "_assert" in node.target:  # the message is prose
            for given in node.inputs:
                if given.arg.type == "as_string":
                    given.arg.as_string = "assertion"


def _call(signature: schema.GraphSignature) -> schema.ModuleCallEntry:
    """All inputs by position, all outputs in a tuple: not read from the file."""
    given = [s for s in signature.input_specs if s.type in ("user_input", "constant_input")]
    made = [s for s in signature.output_specs if s.type == "user_output"]
    called = schema.ModuleCallSignature(
        inputs=[],
        outputs=[],
        in_spec=treespec_dumps(tree_structure(((0,) * len(given), {}))),
        out_spec=treespec_dumps(tree_structure((0,) * len(made))),
    )
    return schema.ModuleCallEntry(fqn="", signature=called)


def _weights(graph: schema.ExportedProgram) -> Iterator[_Weight]:
    module = graph.graph_module
    for spec in module.signature.input_specs:
        kind, value = spec.type, spec.value
        target: Any = {
            "parameter": lambda v: v.parameter_name,
            "buffer": lambda v: v.buffer_name,
            "tensor_constant": lambda v: v.tensor_constant_name,
        }.get(str(kind))
        if target is None:
            continue
        node = value.arg.name
        parameter = str(kind) == "parameter"
        state = parameter or (str(kind) == "buffer" and value.persistent)
        yield _Weight(node, target(value), parameter, state, module.graph.tensor_values[node])


def _memory(tensor: torch.Tensor, weight: _Weight) -> torch.Tensor:
    """uint8 of shape (bytes,): all from the tensor's first element to its last, as it lies."""
    tensor = tensor.detach().cpu()
    if tensor.stride() != weight.strides:
        laid = torch.empty_strided(weight.sizes, weight.strides, dtype=tensor.dtype)
        tensor = laid.copy_(tensor)
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    span = 1 + sum((size - 1) * stride for size, stride in steps) if tensor.numel() else 0
    return tensor.as_strided((span,), (1,)).clone().view(torch.uint8)


def _tensor(memory: torch.Tensor, weight: _Weight) -> torch.Tensor:
    """The inverse of `_memory`; torch refuses strides that lead out of the memory."""
    dtype = _SERIALIZE_TO_TORCH_DTYPE[weight.meta.dtype]
    tensor = memory.clone().view(dtype).as_strided(weight.sizes, weight.strides)
    if weight.is_parameter:
        return torch.nn.Parameter(tensor, requires_grad=weight.meta.requires_grad)
    return tensor
