"""ProgramEditor: edits the graph of an ExportedProgram, and its signature and weights with it.

An editor's program is functional: no call writes into memory that another one reads. So passes
consider values only, and never when memory holds them.

An ExportedProgram lists its constants as placeholders of the graph, as entries of the graph
signature and as tensors of the state dict. The editor keeps the three in step, and gives every new
node the metadata (fake value, module path, source line) that lowering and messages rely on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.export.passes import move_to_device_pass
from torch.fx import Graph, Node

from transforms.graph.aliasing import Aliasing, functional, nodes_of
from transforms.graph.retrace import decompose_program, named_outputs
from transforms.graph.schemas import call_with, hashable, schema_of, writes

# Metadata on a node's origin, copied from the node that a new one replaces.
_ORIGIN_KEYS = ("stack_trace", "nn_module_stack", "torch_fn", "from_node", "seq_nr")
_CONSTANT_KINDS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def _must_stay(node: Node) -> bool:
    """Return whether a call without users is not dead code, such as an assertion."""
    schema, home = schema_of(node.target), getattr(node.target, "__module__", "")
    ends = home == "torch._functorch.predispatch"  # ends a torch.vmap
    return node.is_impure() or ends or (schema is not None and not schema.returns)


def fake_value(node: Node) -> Any:
    """Return a node's fake tensor (or tuple, or number), which has shape, strides and no data."""
    return node.meta["val"]


class ProgramEditor:
    """An editable copy of a program; the original program is never changed.

    The copy is made once and shares its weights: passes that run one after another share an editor.
    If the program writes in place, as torch.export leaves it, the copy returns the written values
    beside its results, unless `as_written` keeps such calls. Errors name it `place`.
    """

    def __init__(
        self, program: ExportedProgram, place: str = "program main", *, as_written: bool = False
    ) -> None:
        self.place = place
        self.first_state: Mapping[str, Any] = program.state_dict  # before any pass runs
        if not as_written and any(map(writes, nodes_of(program))):
            program = functional(program)
        graph = copy.deepcopy(program.graph)
        for old, new in zip(program.graph.nodes, graph.nodes, strict=True):
            new.name = old.name  # a copy renames `input` to `input_1`, unlike the signature
        module = torch.fx.GraphModule(program.graph_module, graph)
        module.meta = copy.copy(program.graph_module.meta)
        self._edit(program, graph, module)

    def _edit(self, program: ExportedProgram, graph: Graph, module: torch.fx.GraphModule) -> None:
        """Start from a program's signature and constants, and a graph that the editor owns."""
        self._program = program
        self.graph = graph
        self.module = module
        self._specs: list[InputSpec] = list(program.graph_signature.input_specs)
        self._state: dict[str, Any] = dict(program.state_dict)
        self._constants: dict[str, Any] = dict(program.constants)
        self._by_name = {spec.arg.name: spec for spec in self._specs}
        self._mutated = self._find_mutated()
        self._added: dict[str, Node] = {}

    # Looking

    @property
    def program(self) -> ExportedProgram:
        """The program as `finish` last returned it; the original one before that."""
        return self._program

    @property
    def fake_mode(self) -> FakeTensorMode:
        """The mode of the program's fake values, with its symbolic shapes."""
        for node in self.graph.nodes:
            if isinstance(node.meta.get("val"), Tensor):
                mode: FakeTensorMode = node.meta["val"].fake_mode
                return mode
        raise ValueError("the program has no tensor")

    def least(self, size: Any) -> int | None:
        """Return the least value of a symbol of dynamic sizes; None if it is unknown.

        torch assumes a size of at least 2 where an exported range of its multiples begins at 1.
        """
        ends = [
            bounds.lower // multiple.coeff(size)
            for multiple, bounds in self._program.range_constraints.items()
            if multiple.free_symbols == {size} and multiple.coeff(size) * size == multiple
        ]
        return int(min(ends)) if ends else None

    def calls(self, *targets: Any) -> list[Node]:
        """Return the nodes that call one of `targets`, in graph order."""
        return [n for n in self.graph.nodes if n.op == "call_function" and n.target in targets]

    def constant(self, node: Any) -> Tensor | None:
        """Return the tensor of a weight, buffer or lifted constant; None if a call changes it."""
        spec = self._by_name.get(getattr(node, "name", ""))
        if spec is None or node.op != "placeholder" or spec.kind not in _CONSTANT_KINDS:
            return None
        if spec.target is None or spec.target in self._mutated:
            return None
        value = self._value(spec)
        return value if isinstance(value, Tensor) else None

    def aliasing(self) -> Aliasing:
        """Return which nodes of the current graph may share memory."""
        return Aliasing(self.graph)

    def _find_mutated(self) -> set[str | None]:
        """Return the constants that a call changes, under every name of the same memory."""
        signature = self._program.graph_signature
        listed = {*signature.buffers_to_mutate.values(), *signature.parameters_to_mutate.values()}
        held = {spec.target: self._value(spec) for spec in self._specs if spec.target}
        memory = {
            name: value.untyped_storage()._cdata
            for name, value in held.items()
            if listed and isinstance(value, Tensor) and value.layout is torch.strided
        }
        changed = {memory.get(name) for name in listed}
        return listed | {name for name, place in memory.items() if place in changed}

    def _value(self, spec: InputSpec) -> Any:
        target = spec.target or ""
        return self._state.get(target, self._constants.get(target))

    def constant_name(self, node: Node) -> str:
        """Return the qualified name of a placeholder's constant, e.g. `layer1.0.weight`."""
        return str(self._by_name[node.name].target)

    def fingerprint(self) -> tuple[Any, ...]:
        """Return a value that is equal for equal graphs, inputs, signatures and constants.

        Constants are compared by the identity of their tensors: no weight is edited in place.
        """
        index = {node: ("node", i) for i, node in enumerate(self.graph.nodes)}
        nodes = tuple(
            (n.op, str(n.target), hashable((n.args, n.kwargs), index.__getitem__)) for n in index
        )
        constants = tuple((spec.kind, spec.target, id(self._value(spec))) for spec in self._specs)
        inputs = (n.meta.get("val") for n in index if n.op == "placeholder")
        dense = [v for v in inputs if getattr(v, "layout", None) is torch.strided]
        return nodes, constants, [(str(value.stride()), value.device) for value in dense]

    # Changing

    def call(self, target: OpOverload | Any, *args: Any, like: Node, **kwargs: Any) -> Node:
        """Insert a call before the node `like`, compute its value and copy the origin of `like`."""
        with self.graph.inserting_before(like):
            node = self.graph.call_function(target, args, kwargs)
        for key in _ORIGIN_KEYS:
            if key in like.meta:
                node.meta[key] = like.meta[key]
        self.refresh(node)
        return node

    def refresh(self, node: Node) -> None:
        """Recompute the fake value of `node` from its arguments' values."""
        # The Python dispatcher is needed: padding in C++ asks dynamic sizes for their values.
        with self.fake_mode, torch.no_grad(), enable_python_dispatcher():
            node.meta["val"] = call_with(node, fake_value)
        node.meta.pop("tensor_meta", None)

    def set_values(self, values: Mapping[Node, Any]) -> None:
        """Set the fake values of nodes, as computed by `downstream_values` of layouts.py."""
        for node, value in values.items():
            node.meta["val"] = value
            node.meta.pop("tensor_meta", None)

    def is_parameter(self, node: Node) -> bool:
        """Return whether a placeholder's constant was learned, or computed from a learned one."""
        return self._by_name[node.name].kind is InputKind.PARAMETER

    def add_constant(self, name: str, value: Tensor, *, learned: bool = True) -> Node:
        """Add a frozen weight and return its placeholder; `name` is made unique.

        If an equal constant was added under this name, return that one instead. A constant that is
        not `learned` becomes a buffer, such as the basis of a transform.
        """
        fqn, count = name, 0
        while fqn in self._state or fqn in self._constants:
            held = self._state.get(fqn, value)
            alike = (held.dtype, held.stride()) == (value.dtype, value.stride())
            if fqn in self._added and alike and torch.equal(held, value):
                return self._added[fqn]
            count += 1
            fqn = f"{name}_{count}"
        first = next(iter(self.graph.nodes))
        with self.graph.inserting_before(first):
            node = self.graph.placeholder(("p_" if learned else "b_") + fqn)
            node.target = node.name  # the graph's own name: unique, and a valid Python identifier
        with self.fake_mode:
            node.meta["val"] = self.fake_mode.from_tensor(value.detach(), static_shapes=True)
        kind, held = InputKind.PARAMETER, value.detach()
        if learned:
            held = torch.nn.Parameter(held, requires_grad=False)
        else:
            kind = InputKind.BUFFER
        spec = InputSpec(kind, TensorArgument(name=node.name), fqn, persistent=not learned or None)
        self._specs.insert(0, spec)
        self._by_name[node.name] = spec
        self._state[fqn] = held
        self._added[fqn] = node
        return node

    def set_constant(self, node: Node, value: Tensor) -> None:
        """Replace the tensor of a weight's placeholder with one of the same shape and dtype.

        A parameter stays a parameter, and a buffer or lifted constant stays a plain tensor: torch
        looks them up by their type.
        """
        target, fresh = self.constant_name(node), value.detach()
        holder = self._state if target in self._state else self._constants
        is_parameter = isinstance(holder[target], torch.nn.Parameter)
        holder[target] = torch.nn.Parameter(fresh, requires_grad=False) if is_parameter else fresh
        node.meta["val"] = self.fake_mode.from_tensor(fresh, static_shapes=True)

    def replace(self, old: Node, new: Node) -> None:
        """Make every user of `old`, outputs included, use `new`; erase `old` if it is unused."""
        old.replace_all_uses_with(new)
        if not old.users:
            self.graph.erase_node(old)

    def decompose(self, table: Mapping[OpOverload, Callable[..., Any]]) -> None:
        """Retrace the whole graph, computing each operator in `table` by its function."""
        program = decompose_program(self.finish(), table)
        self._edit(program, program.graph, program.graph_module)

    def move_to(self, device: str) -> None:
        """Put all values on a device."""
        program = move_to_device_pass(self.finish(), device)
        self._edit(program, program.graph, program.graph_module)

    # Handing back

    def finish(self) -> ExportedProgram:
        """Return the edited program, which shares its graph with the editor, without dead code."""
        self.graph.eliminate_dead_code(is_impure_node=_must_stay)
        self.drop_unused_constants()
        self.graph.lint()
        self.module.recompile()
        before = self._program
        signature = copy.copy(before.graph_signature)
        signature.input_specs = self._specs
        signature.output_specs = named_outputs(signature, self.graph)
        made = ExportedProgram(
            self.module, self.graph, signature, self._state, before.range_constraints,
            before.module_call_graph, before.example_inputs, self._constants,
            verifiers=before.verifiers,
        )  # fmt: skip
        made._guards_code = []  # they name forward's inputs, which a flat program does not have
        self._edit(made, made.graph, made.graph_module)
        return made

    def drop_unused_constants(self) -> None:
        """Remove the weights and buffers that no node reads and no call changes."""
        for node in list(self.graph.nodes):
            spec = self._by_name.get(node.name)
            if node.op != "placeholder" or node.users or spec is None:
                continue
            if spec.kind in _CONSTANT_KINDS and spec.target not in self._mutated:
                self.graph.erase_node(node)
                self._specs.remove(spec)
        kept = {spec.target for spec in self._specs}
        tensors = {id(v) for k, v in self._state.items() if k in kept}  # it may have two names
        self._state = {k: v for k, v in self._state.items() if id(v) in tensors}
        self._constants = {k: v for k, v in self._constants.items() if k in kept}

    def drop_inputs(self, specs: Sequence[InputSpec]) -> None:
        """Remove inputs that no node reads, such as the constants that export was given."""
        names = {spec.arg.name for spec in specs}
        for node in [n for n in self.graph.nodes if n.op == "placeholder" and n.name in names]:
            self.graph.erase_node(node)
        self._specs = [spec for spec in self._specs if spec.arg.name not in names]
