"""Judges values of two runs by a model's tolerances, and cuts small pieces out of programs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node
from torch.utils._pytree import tree_flatten, tree_map

from menagerie.numerics import DEFAULT_TOLERANCES, Dtype, Tolerance
from menagerie.validation.compare import compare
from transforms.graph.editor import ProgramEditor
from transforms.graph.interpret import capture
from transforms.graph.layouts import as_array
from transforms.graph.record import module_path, source_line
from zoo.errors import MenagerieError
from zoo.records import Divergence, DivergenceStage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from torch.export import ExportedProgram


T = TypeVar("T")
Tolerances = Callable[[Dtype], Tolerance | None]
_NAMES = frozenset(str(d) for d in Dtype)


@dataclass(frozen=True)
class Difference:
    """How far a tensor is from eager's, in its own units and in decibels."""

    max_abs: float
    snr_db: float
    passed: bool


def default_tolerances(dtype: Dtype) -> Tolerance | None:
    """What a model without tolerances of its own allows; None: bit for bit."""
    return DEFAULT_TOLERANCES.get(dtype)


def comparable(value: Any) -> bool:
    """Whether a value is a tensor of an element type that artifacts know."""
    return isinstance(value, torch.Tensor) and _dtype_name(value) in _NAMES


def difference(expected: torch.Tensor, actual: torch.Tensor, tolerances: Tolerances) -> Difference:
    """Compare as the validation of an artifact does; a wrong shape or dtype never passes."""
    dtype = Dtype(_dtype_name(expected))
    if expected.dtype != actual.dtype:
        return Difference(float("inf"), float("-inf"), passed=False)
    parity = compare(
        as_array(expected), as_array(actual), dtype, tolerances(dtype), case=0, name="output"
    )
    return Difference(parity.max_abs, parity.snr_db, parity.passed)


def _dtype_name(value: torch.Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


# Lowers a program, runs it on the target, and returns its outputs in order.
Runner = Callable[[torch.export.ExportedProgram, Sequence[torch.Tensor]], Sequence[torch.Tensor]]


def divergence_at(stage: DivergenceStage, node: Node, distance: Difference) -> Divergence:
    """The record of a wrong node, with where in the model it comes from."""
    file, line = source_line(node)
    return Divergence(
        stage=stage,
        pass_name=None,
        node=node.name,
        operator=str(node.target),
        module_path=module_path(node),
        source_line=f"{file}:{line}" if file else "",
        max_abs=distance.max_abs,
        snr_db=distance.snr_db,
    )


def is_probe(node: Node) -> bool:
    """Whether a node is a computed tensor of real numbers: integers may tip over by rounding."""
    value = node.meta.get("val")
    if node.op != "call_function" or not isinstance(value, torch.Tensor):
        return False
    return comparable(value) and value.is_floating_point()


class Deadline:
    """A moment after which a search makes do with what it knows.

    Args:
        seconds: from now on; None: for ever.
    """

    def __init__(self, seconds: float | None) -> None:
        self._end = time.monotonic() + (math.inf if seconds is None else seconds)

    @property
    def passed(self) -> bool:
        """Whether it is over."""
        return time.monotonic() >= self._end

    def check(self, what: str) -> None:
        """Raise MenagerieError when it is over; `what` did not come about in time."""
        if self.passed:
            raise MenagerieError("bisect", f"the time was up before {what}")


@dataclass(frozen=True)
class Piece:
    """A program with the tensors to call it with."""

    program: ExportedProgram
    inputs: tuple[torch.Tensor, ...]


def with_outputs(program: ExportedProgram, names: Sequence[str]) -> ExportedProgram:
    """The program with the same inputs that returns the nodes `names` and computes no more."""
    editor = ProgramEditor(program)
    nodes = {n.name: n for n in editor.graph.nodes}
    output = next(n for n in reversed(editor.graph.nodes) if n.op == "output")
    output.args = (tuple(nodes[name] for name in names),)
    editor.graph.eliminate_dead_code()
    kept = {n.name for n in editor.graph.nodes}
    used = {n.name for n in editor.graph.nodes if n.users}
    specs = []
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT or spec.arg.name in used:
            specs.append(spec)
        elif spec.arg.name in kept:
            editor.graph.erase_node(nodes[spec.arg.name])
    return _assemble(
        editor.graph, editor.module, specs, names, like=program, call=_signature(program)
    )


def _signature(program: ExportedProgram) -> ModuleCallSignature:
    signature: ModuleCallSignature | None = program.module_call_graph[0].signature
    if signature is None:
        raise ValueError("the program does not say how it is called")
    return signature


def extract(
    program: ExportedProgram, names: Collection[str], inputs: Sequence[torch.Tensor]
) -> Piece:
    """Some nodes of a program as a program of their own.

    What flows into them from other nodes becomes its inputs, with the values that it has when the
    whole program runs on `inputs`; weights stay weights; sizes become constants. It returns every
    chosen node that something else needs. A node that picks one of several results comes with the
    node that makes them.

    Args:
        program: where the nodes are.
        names: of the nodes.
        inputs: a tensor for each user input of `program`, in order.
    """
    chosen = [n for n in program.graph.nodes if n.name in names]
    feeding = _feeding(chosen)
    while several := [n for n in feeding if isinstance(n.meta.get("val"), (list, tuple))]:
        chosen = [n for n in program.graph.nodes if n in chosen or n in several]
        feeding = _feeding(chosen)
    values = capture(program, inputs, [n.name for n in feeding])
    return _Extraction(program, values).build(feeding, chosen)


MOST_PIECES = 12  # tried on the way to a small one


def grown(
    program: ExportedProgram,
    inputs: Sequence[torch.Tensor],
    chosen: Sequence[Node],
    *,
    around: Callable[[Node], Iterable[Node]],
    wrong: Callable[[Piece], T | None],
    deadline: Deadline,
) -> tuple[Piece, list[Node], T] | None:
    """The first piece of a program that is wrong, of some nodes and ever more around them.

    Args:
        program: where the nodes are.
        inputs: a tensor for each of its user inputs, in order.
        chosen: the nodes to begin with.
        around: those that a node's piece grows by.
        wrong: what is wrong with a piece; None: nothing.
        deadline: when to give up.

    Returns:
        The piece, its nodes in graph order and what is wrong with it; None where none was found.
    """
    nodes = list(chosen)
    for _ in range(MOST_PIECES):
        if not nodes or deadline.passed:
            break
        piece = extract(program, {n.name for n in nodes}, inputs)
        if (found := wrong(piece)) is not None:
            return piece, nodes, found
        layer = {m for n in nodes for m in around(n) if m.op == "call_function"} - set(nodes)
        if not layer:
            break
        nodes = [n for n in program.graph.nodes if n in layer or n in nodes]
    return None


def _feeding(chosen: Sequence[Node]) -> list[Node]:
    """What flows into the chosen nodes from others."""
    sources = dict.fromkeys(i for n in chosen for i in n.all_input_nodes)
    return [n for n in sources if n not in chosen]


class _Extraction:
    """Copies nodes into a graph of their own, with fixed shapes."""

    def __init__(self, program: ExportedProgram, values: dict[str, Any]) -> None:
        self._program = program
        self._values = values
        self._known = {s.arg.name: s for s in program.graph_signature.input_specs}
        self._graph = Graph()
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._map: dict[Node, Any] = {}
        self._specs: list[InputSpec] = []
        self._inputs: list[torch.Tensor] = []

    def build(self, feeding: Sequence[Node], chosen: Sequence[Node]) -> Piece:
        """The piece made of `chosen`, fed by `feeding`."""
        for node in sorted(feeding, key=lambda n: not self._is_constant(n)):  # weights first
            self._feed(node)
        for node in chosen:
            self._copy(node)
        returned = [self._map[n] for n in chosen if _is_needed(n, chosen)]
        self._graph.output(tuple(returned))
        module = GraphModule(self._program.graph_module, self._graph)
        _, in_spec = tree_flatten((tuple(self._inputs), {}))
        call = ModuleCallSignature(inputs=[], outputs=[], in_spec=in_spec, out_spec=in_spec)
        program = _assemble(
            self._graph,
            module,
            self._specs,
            [n.name for n in returned],
            like=self._program,
            call=call,
            example=tuple(self._inputs),
        )
        return Piece(program, tuple(self._inputs))

    def _is_constant(self, node: Node) -> bool:
        spec = self._known.get(node.name)
        return spec is not None and spec.kind is not InputKind.USER_INPUT

    def _feed(self, node: Node) -> None:
        value = self._values[node.name]
        if node.op == "get_attr":
            self._map[node] = self._graph.node_copy(node)
        elif not isinstance(value, torch.Tensor):
            self._map[node] = value  # a size
        else:
            self._map[node] = self._placeholder(node, value)

    def _placeholder(self, node: Node, value: torch.Tensor) -> Node:
        if not self._is_constant(node):
            return self._new_input(node.name, value)
        placeholder = self._graph.placeholder(node.name)
        placeholder.name = node.name
        placeholder.meta["val"] = self._mode.from_tensor(value, static_shapes=True)
        self._specs.append(self._known[node.name])
        return placeholder

    def _new_input(self, name: str, value: torch.Tensor) -> Node:
        placeholder = self._graph.placeholder(name)
        placeholder.meta["val"] = self._mode.from_tensor(value, static_shapes=True)
        argument = TensorArgument(name=placeholder.name)
        self._specs.append(InputSpec(InputKind.USER_INPUT, argument, None))
        self._inputs.append(value)
        return placeholder

    def _copy(self, node: Node) -> None:
        def mapped(argument: Node) -> Any:
            return self._map[argument]

        args = torch.fx.node.map_arg(node.args, mapped)
        kwargs = torch.fx.node.map_arg(node.kwargs, mapped)
        copied = self._graph.create_node(node.op, node.target, args, kwargs, name=node.name)
        copied.meta = {k: v for k, v in node.meta.items() if k not in {"val", "tensor_meta"}}
        fakes = tree_map(
            lambda a: a.meta["val"] if isinstance(a, Node) else a, (copied.args, copied.kwargs)
        )
        with self._mode, torch.no_grad():
            copied.meta["val"] = node.target(*fakes[0], **fakes[1])  # type: ignore[operator]
        self._map[node] = copied


def _is_needed(node: Node, chosen: Sequence[Node]) -> bool:
    """Whether a chosen node is a tensor that is used outside, or not at all."""
    if not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    return not node.users or any(user not in chosen for user in node.users)


def _assemble(
    graph: Graph,
    module: GraphModule,
    specs: Sequence[InputSpec],
    outputs: Sequence[str],
    *,
    like: ExportedProgram,
    call: ModuleCallSignature,
    example: tuple[torch.Tensor, ...] | None = None,
) -> ExportedProgram:
    """An ExportedProgram of a graph, with the constants, ranges and dialect of another."""
    graph.lint()
    arguments = [TensorArgument(name=name) for name in outputs]
    _, out_spec = tree_flatten(tuple(outputs))
    call = replace(call, inputs=[], outputs=[], out_spec=out_spec)
    targets = {spec.target for spec in specs}
    return torch.export.ExportedProgram(
        root=GraphModule(module, graph),
        graph=graph,
        graph_signature=ExportGraphSignature(
            input_specs=list(specs),
            output_specs=[OutputSpec(OutputKind.USER_OUTPUT, a, None) for a in arguments],
        ),
        state_dict={k: v for k, v in like.state_dict.items() if k in targets},
        range_constraints=like.range_constraints if example is None else {},
        module_call_graph=[ModuleCallEntry(fqn="", signature=call)],
        example_inputs=like.example_inputs if example is None else (example, {}),
        constants={k: v for k, v in like.constants.items() if k in targets},
        verifiers=like.verifiers,
    )
