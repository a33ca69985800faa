"""Small pieces of a program: how they are extracted, and how far they are from eager PyTorch."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
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
from menagerie.validation import Limits
from menagerie.validation.compare import compare
from menagerie.validation.findings import OutputParity, Verdict
from transforms.export.prepare import Prepared
from transforms.goldens.cases import GoldenCase
from transforms.graph.call_signature import DTYPES, Eager, given, signature_of
from transforms.graph.editor import ProgramEditor, fake_value
from transforms.graph.graph_pass import GraphPass
from transforms.graph.interpret import capture, output_nodes
from transforms.graph.layouts import as_array
from transforms.graph.schemas import call_with
from transforms.stages import lower, run_goldens, transform
from transforms.targets import Identity, Settings, Target, target_named

Tolerances = Mapping[Dtype, Tolerance]

_WIDEST = (1, 2**31, 1)  # sessions check ranges; this run compares numbers
_LIMITS = Limits(seconds=600.0, measure_seconds=0.0)
_WRONG = compare(np.zeros(1), np.ones(1), Dtype.FLOAT64, None, case=0, name="")
CRASHED = replace(_WRONG, max_abs=float("inf"))  # farther from eager's than any tensor


@dataclass(frozen=True)
class Piece:
    """A program with the tensors to call it with."""

    program: ExportedProgram
    inputs: tuple[Tensor, ...]


def with_outputs(program: ExportedProgram, names: Sequence[str]) -> ExportedProgram:
    """Return a program with the same inputs that computes and returns only the nodes `names`."""
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


def extract(program: ExportedProgram, names: Collection[str], inputs: Sequence[Tensor]) -> Piece:
    """Return the named nodes of a program as a program of their own.

    Values that flow into them from other nodes become its inputs, as computed when the whole
    program runs on `inputs`, a tensor for each user input; weights stay weights; sizes become
    constants. It returns every chosen node that another node needs. A node that selects one of
    several results comes with the node that makes them.
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
    taken: list[Tensor] = []
    for node in sorted(feeding, key=lambda n: n.name not in weights):
        value = values[node.name]
        if node.op == "get_attr":
            made[node] = graph.node_copy(node)
        elif not isinstance(value, Tensor):
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
    returned = [  # the tensors that are used outside, or nowhere
        made[n]
        for n in chosen
        if isinstance(n.meta.get("val"), Tensor)
        and (not n.users or not n.users.keys() <= set(chosen))
    ]
    graph.output(tuple(returned))
    module, names = GraphModule(program.graph_module, graph), [n.name for n in returned]
    example = tuple(taken)
    return Piece(_assemble(graph, module, specs, names, like=program, example=example), example)


def _feeding(chosen: Sequence[Node]) -> list[Node]:
    sources = dict.fromkeys(i for n in chosen for i in n.all_input_nodes)
    return [n for n in sources if n not in chosen]


def _copied(node: Node, graph: Graph, made: Mapping[Node, Any], mode: FakeTensorMode) -> Node:
    """Copy a call to the end of a graph, with its operands' shapes in that graph."""
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), made.__getitem__)
    copied = graph.create_node(node.op, node.target, args, kwargs, name=node.name)
    copied.meta = {k: v for k, v in node.meta.items() if k not in {"val", "tensor_meta"}}
    with mode, torch.no_grad():
        copied.meta["val"] = call_with(copied, fake_value)
    return copied


def _assemble(
    graph: Graph, module: GraphModule, specs: Sequence[InputSpec], outputs: Sequence[str], *,
    like: ExportedProgram, example: tuple[Tensor, ...] | None = None,
) -> ExportedProgram:  # fmt: skip
    """Return an ExportedProgram of a graph, with another's constants, ranges and dialect."""
    graph.lint()
    arguments = [TensorArgument(name=name) for name in outputs]
    call, made = like.module_call_graph[0].signature, tree_structure(tuple(outputs))
    if call is None or example is not None:
        call = ModuleCallSignature([], [], tree_structure((example or (), {})), made)
    call = replace(call, inputs=[], outputs=[], out_spec=made)
    targets = {spec.target for spec in specs}
    results = [OutputSpec(OutputKind.USER_OUTPUT, each, None) for each in arguments]
    return torch.export.ExportedProgram(
        root=GraphModule(module, graph),
        graph=graph,
        graph_signature=ExportGraphSignature(input_specs=list(specs), output_specs=results),
        state_dict={k: v for k, v in like.state_dict.items() if k in targets},
        range_constraints=like.range_constraints if example is None else {},
        module_call_graph=[ModuleCallEntry(fqn="", signature=call)],
        example_inputs=like.example_inputs if example is None else (example, {}),
        constants={k: v for k, v in like.constants.items() if k in targets},
        verifiers=like.verifiers,
    )


# Runs a piece and returns the distance of its outputs from eager's, by their nodes' names.
Judge = Callable[[Piece, Tolerances], dict[str, OutputParity]]


def comparable(value: Any) -> bool:
    """Return whether a value is a tensor with an element type that artifacts support."""
    return isinstance(value, Tensor) and value.dtype in DTYPES


def differences(
    expected: Mapping[str, Any], actual: Mapping[str, Any], tolerances: Tolerances
) -> dict[str, OutputParity]:
    """Compare all comparable values by name, as the validation of an artifact does."""
    found = {}
    for name, wanted in expected.items():
        if comparable(wanted):
            dtype = DTYPES[wanted.dtype]
            arrays = as_array(wanted), as_array(actual[name])
            found[name] = compare(*arrays, dtype, tolerances.get(dtype), case=0, name=name)
    return found


def judge_rewritten(
    piece: Piece, tolerances: Tolerances, *, graph_pass: GraphPass
) -> dict[str, OutputParity]:
    """Run a piece in eager before and after a pass; raise PassError if it breaks its contract."""
    rewritten, _ = graph_pass(piece.program)
    names = [n.name for n in output_nodes(piece.program)]
    after = [n.name for n in output_nodes(rewritten)]
    expected = capture(piece.program, piece.inputs, names)
    found = capture(rewritten, piece.inputs, after)
    actual = {name: found[other] for name, other in zip(names, after, strict=True)}
    return differences(expected, actual, tolerances)


def judge_lowered(
    piece: Piece, tolerances: Tolerances, *, target: Target | str
) -> dict[str, OutputParity]:
    """Lower a piece, the program before the device's passes, and run its bundle without torch.

    Return the distance of each output from eager's, by its node's name; it is infinite if the run
    crashed, was refused by the runtime, or took longer than ten minutes. Raise LoweringError if the
    piece cannot be lowered.
    """
    with tempfile.TemporaryDirectory(prefix="menagerie-") as temporary:
        bundle = Path(temporary) / "bundle"
        lower_piece(bundle, piece.program, piece.inputs, target=target, tolerances=tolerances)
        report = run_goldens(bundle, limits=_LIMITS)
    names = [n.name for n in output_nodes(piece.program)]
    if report.verdict not in {Verdict.PASSED, Verdict.DIVERGED}:
        return dict.fromkeys(names, CRASHED)
    [program] = report.programs
    return dict(zip(names, program.parity, strict=True))


def lower_piece(
    bundle: Path,
    program: ExportedProgram,
    inputs: Sequence[Tensor],
    *,
    target: Target | str = "cpu",
    tolerances: Tolerances | None = None,
) -> tuple[str, ...]:
    """Run the device's passes over any program, lower it, and write a bundle of it.

    The golden case is its result for `inputs`, a tensor for each input in order. Return the names
    of its outputs. Raise LoweringError if it cannot be lowered.
    """
    settings = Settings(
        target=target_named(target), passes=(), tolerances=tolerances or {}, seconds=0
    )
    programs, _ = transform([_prepared(program, inputs)], settings)
    identity = Identity("piece", settings.target, "0" * 64, "a piece of a model")
    lower(bundle, identity, programs, settings)
    return tuple(tensor.name for tensor in programs[0].signature.outputs)


def _prepared(program: ExportedProgram, inputs: Sequence[Tensor]) -> Prepared:
    """Prepare a piece in which every symbolic size is its own dimension, with the widest range."""
    outputs = output_nodes(program)
    sizes: dict[str, str] = {}
    shapes: dict[str, list[int | str]] = {}
    for number, value in enumerate(given(program)):
        shapes[f"input_{number}"] = [
            s if isinstance(s, int) else sizes.setdefault(str(s), f"d{len(sizes)}")
            for s in value.shape
        ]
    names = [f"output_{i}" for i in range(len(outputs))]
    ranges = dict.fromkeys(sizes.values(), _WIDEST)
    expected = capture(program, inputs, [n.name for n in outputs])
    golden = GoldenCase(
        dimensions={},
        inputs=dict(zip(shapes, inputs, strict=True)),
        outputs={name: expected[n.name] for name, n in zip(names, outputs, strict=True)},
    )
    signature = signature_of(program, shapes, names, ranges)
    eager = Eager(
        program.module(check_guards=False),
        lambda given: (tuple(given.values()), {}),
        lambda found: dict(zip(names, found, strict=True)),
    )
    return Prepared("main", program, signature, [golden], eager)
