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
from torch.utils._pytree import tree_structure

from menagerie.numerics import Dtype, Tolerance
from menagerie.validation.compare import compare
from transforms.graph.editor import ProgramEditor, fake_value
from transforms.graph.interpret import capture
from transforms.graph.layouts import as_array
from transforms.graph.record import module_path, source_line
from transforms.graph.schemas import call_with
from zoo.errors import MenagerieError
from zoo.records import Divergence, DivergenceStage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

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


def differences(
    names: Iterable[str],
    expected: Iterable[Any],
    actual: Iterable[torch.Tensor],
    tolerances: Tolerances,
) -> dict[str, Difference]:
    """How far values are from eager's by name, of those that can be compared."""
    return {
        name: difference(wanted, found, tolerances)
        for name, wanted, found in zip(names, expected, actual, strict=True)
        if comparable(wanted)
    }


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
    return _assemble(editor.graph, editor.module, specs, names, like=program)


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
    weights = {
        spec.arg.name: spec
        for spec in program.graph_signature.input_specs
        if spec.kind is not InputKind.USER_INPUT
    }
    graph, mode = Graph(), FakeTensorMode(allow_non_fake_inputs=True)
    made: dict[Node, Any] = {}
    specs: list[InputSpec] = []
    taken: list[torch.Tensor] = []
    for node in sorted(feeding, key=lambda n: n.name not in weights):
        value = values[node.name]
        if node.op == "get_attr":
            made[node] = graph.node_copy(node)
        elif not isinstance(value, torch.Tensor):
            made[node] = value  # a size
        else:
            made[node] = placeholder = graph.placeholder(node.name)
            placeholder.name = node.name
            placeholder.meta["val"] = mode.from_tensor(value, static_shapes=True)
            given = InputSpec(InputKind.USER_INPUT, TensorArgument(name=node.name), None)
            specs.append(weights.get(node.name, given))
            taken += [] if node.name in weights else [value]
    for node in chosen:
        made[node] = _copied(node, graph, made, mode)
    returned = [made[n] for n in chosen if _is_needed(n, chosen)]
    graph.output(tuple(returned))
    module, names = GraphModule(program.graph_module, graph), [n.name for n in returned]
    example = tuple(taken)
    return Piece(_assemble(graph, module, specs, names, like=program, example=example), example)


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


def _copied(node: Node, graph: Graph, made: Mapping[Node, Any], mode: FakeTensorMode) -> Node:
    """A call of the same name at the end of a graph, with the shapes of what it reads there."""
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), made.__getitem__)
    copied = graph.create_node(node.op, node.target, args, kwargs, name=node.name)
    copied.meta = {k: v for k, v in node.meta.items() if k not in {"val", "tensor_meta"}}
    with mode, torch.no_grad():
        copied.meta["val"] = call_with(copied, fake_value)
    return copied


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
    example: tuple[torch.Tensor, ...] | None = None,
) -> ExportedProgram:
    """An ExportedProgram of a graph, with the constants, ranges and dialect of another."""
    graph.lint()
    arguments = [TensorArgument(name=name) for name in outputs]
    call, made = like.module_call_graph[0].signature, tree_structure(tuple(outputs))
    if call is None or example is not None:
        call = ModuleCallSignature([], [], tree_structure((example or (), {})), made)
    call = replace(call, inputs=[], outputs=[], out_spec=made)
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
