"""Retrace a program with operators decomposed.

torch does it by `ExportedProgram.run_decompositions`, which traces a program twice through layers
that turn writes into results. A program that writes nothing needs no such layers. It is traced once
here, in a sixth of the CPU time for mobilenet_v3_small.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher
from torch._export import utils as export_utils
from torch._functorch._aot_autograd.schemas import GraphSignature
from torch._functorch.aot_autograd import aot_export_module as torch_aot_export_module
from torch._guards import TracingContext, tracing
from torch._ops import OpOverload
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram, _trace, exported_program
from torch.export.graph_signature import ExportGraphSignature, OutputSpec, TensorArgument
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.runtime_assert import insert_deferred_runtime_asserts
from torch.fx.traceback import preserve_node_meta
from torch.utils._pytree import tree_structure

from transforms.graph.guards import any_length
from transforms.graph.schemas import writes

aten = torch.ops.aten

# Operators that export calls on constants made in forward; no constant here has gradients.
_OF_CONSTANTS = {aten.lift_fresh_copy.default: aten.clone.default, aten.detach.default: lambda x: x}

# Per operator that a decomposition keeps whole: kernels outside and inside of it, and fake rule.
_KEPT_WHOLE: dict[OpOverload, tuple[dict[Any, Any], dict[Any, Any], Callable[..., Any]]] = {}


@contextmanager
def _composites_overridden(
    override: Callable[..., Any], table: Mapping[OpOverload, Callable[..., Any]]
) -> Iterator[None]:
    """Override composite operators as torch does, but prepare all 700 (0.1 s) only once."""
    whole = {op for op, way in table.items() if way is export_utils._special_op_to_preserve_cia}
    known = {
        op: _KEPT_WHOLE[op]
        for op in whole & _KEPT_WHOLE.keys()
        if op.py_kernels == _KEPT_WHOLE[op][0]
    }
    new = {op: way for op, way in table.items() if op not in known}
    outside = {op: dict(op.py_kernels) for op in new}
    try:
        for op, (_, inside, rule) in known.items():
            _set_kernels(op, inside)
            fake_impls.op_implementations_dict.setdefault(op, rule)
        with override(new):
            for op in whole & new.keys():
                rule = fake_impls.op_implementations_dict[op]
                _KEPT_WHOLE[op] = outside[op], dict(op.py_kernels), rule
            yield
    finally:
        for op, (before, _, _) in known.items():
            _set_kernels(op, before)
            fake_impls.op_implementations_dict.pop(op, None)


def _set_kernels(op: OpOverload, kernels: dict[Any, Any]) -> None:
    op.py_kernels.clear()
    op.py_kernels.update(kernels)
    op._dispatch_cache.clear()


@contextmanager
def composites_prepared_once() -> Iterator[None]:
    """List and prepare composite operators once for all decompositions, not again in each.

    torch also lists them again for every namespace.
    """
    once = lru_cache(export_utils._materialize_cpp_cia_ops)
    override = partial(_composites_overridden, exported_program._override_composite_implicit_decomp)
    with (
        patch.object(export_utils, "_materialize_cpp_cia_ops", once),
        patch.object(exported_program, "_override_composite_implicit_decomp", override),
        patch.object(exported_program, "_remove_unnecessary_copy_op_pass", _without_copies),
    ):
        yield


_without_torchs_copies = exported_program._remove_unnecessary_copy_op_pass


def _without_copies(module: GraphModule, signature: Any) -> Any:
    """Remove copies into state as torch does, but keep one if a value is kept twice."""
    graph = module.graph
    states = [
        n for n in graph.output_node().all_input_nodes if n.name in signature.buffers_to_mutate
    ]
    kept = {state for state in states if state.target is not aten.copy.default}
    for state in (state for state in states if state not in kept):
        value: Any = state.args[1]
        if value in kept:  # torch looks state up by its value's name
            with graph.inserting_before(state):
                state.update_arg(1, graph.call_function(aten.clone.default, (value,)))
            state.args[1].meta.update(state.meta)  # type: ignore[union-attr]
        kept.add(value)
    return _without_torchs_copies(module, signature)


Table = Mapping[OpOverload, Callable[..., Any]]


def decompose_program(
    program: ExportedProgram, table: Table, results: Mapping[Node, OpOverload] | None = None
) -> ExportedProgram:
    """Retrace a program, for any length, computing each operator in `table` by its function.

    `results` maps calls that write into their first argument to the operator that returns what they
    would write; later readers of the argument read this result.
    """
    with any_length(), composites_prepared_once():
        traced = _followed_once(program, table, results or {})
        if traced is None:
            traced = program.run_decompositions(dict(table))
        return traced


def _followed_once(
    program: ExportedProgram, table: Table, results: Mapping[Node, OpOverload]
) -> ExportedProgram | None:
    """Retrace a program that writes nothing; return None if only torch's own way can."""
    inputs = program.graph.find_nodes(op="placeholder")
    fakes = [node.meta.get("val") for node in inputs]
    if not _is_plain(program.graph, fakes, results):
        return None
    try:
        module = _traced(program, table, fakes, results)
    except Exception:  # noqa: BLE001 - torch's own way raises the known error
        return None
    graph = module.graph
    graph.eliminate_dead_code()
    if program.range_constraints:  # sizes alone determine numbers
        insert_deferred_runtime_asserts(module, fakes[0].fake_mode.shape_env, "", export=True)
    if graph.find_nodes(op="get_attr") or any(map(writes, graph.nodes)):
        return None
    _take_names(inputs, module)
    return _program(program, module)


def _is_plain(
    graph: Graph, inputs: Sequence[Any], results: Container[Node] = (), held: Container[Any] = ()
) -> bool:
    """Return whether a graph calls tensor operators alone, and writes only in `results`."""
    for node in graph.nodes:
        if node.op == "call_function":
            called = isinstance(node.target, OpOverload) or _is_of_sizes(node)
        else:
            called = node.op in {"placeholder", "output"} or node.target in held
        if not called or "unbacked_bindings" in node.meta:
            return False
        if writes(node) and node not in results:
            return False
    return bool(inputs) and all(type(value) is FakeTensor for value in inputs)


def _is_of_sizes(node: Node) -> bool:
    value = node.meta.get("val")
    return node.target is operator.getitem or isinstance(
        value, (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)
    )


class _Follower(Interpreter):
    """An interpreter that substitutes results for some writes, and values for module attributes."""

    def __init__(
        self,
        module: GraphModule,
        results: Mapping[Node, OpOverload] | None = None,
        held: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(module)
        self._results = results or {}
        self._held = held or {}

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:  # noqa: ARG002
        """Return the value that replaces an attribute of the module."""
        return self._held[target]

    def run_node(self, n: Node) -> Any:
        """Run a node; later readers of a written tensor read the result instead."""
        if n not in self._results:
            return super().run_node(n)
        with self._set_current_node(n):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            result = self._results[n](*args, **kwargs)
        self.env[n.all_input_nodes[0]] = result
        return result


def _traced(
    program: ExportedProgram,
    table: Table,
    fakes: list[FakeTensor],
    results: Mapping[Node, OpOverload],
) -> GraphModule:
    """Trace a program on its inputs' fake values, as the second of torch's traces does."""
    mode = fakes[0].fake_mode
    ways: Any = _OF_CONSTANTS | dict(table)
    whole, ways = exported_program._split_decomp_table_to_cia_and_python_decomp(ways)
    with (
        mode,
        exported_program._override_composite_implicit_decomp(whole),
        _trace._ignore_backend_decomps(),
        export_utils._compiling_state_context(),
        _trace._disable_custom_triton_op_functional_decomposition(),
        torch.no_grad(),
        tracing(TracingContext(mode)),
        enable_python_dispatcher(),
        preserve_node_meta(),
    ):
        follow = _Follower(program.graph_module, results).run
        module: GraphModule = make_fx(follow, decomposition_table=ways)(*fakes)
    return module


def aot_export_module(
    module: GraphModule, arguments: Sequence[Any], *, trace_joint: bool, decompositions: Table
) -> tuple[GraphModule, GraphSignature]:
    """Lift a module's state to inputs and decompose operators (torch._functorch.aot_autograd).

    It replaces torch's own function, which it calls if something is written.
    """
    parameters: dict[Any, Tensor] = dict(module.named_parameters(remove_duplicate=False))
    buffers: dict[Any, Tensor] = dict(module.named_buffers(remove_duplicate=False))
    state = parameters | buffers
    lifted = None
    if not trace_joint and _is_plain(module.graph, arguments, held=state):
        lifted = _lifted(module, state, arguments, decompositions)
    if lifted is None or any(map(writes, lifted.graph.nodes)):
        traced: Any = torch_aot_export_module(
            module, arguments, trace_joint=trace_joint, decompositions=dict(decompositions)
        )
        return traced  # type: ignore[no-any-return]
    inputs = [node.name for node in lifted.graph.find_nodes(op="placeholder")]
    of_state = dict(zip(inputs, state, strict=False))
    results: Any = lifted.graph.output_node().args[0]
    return lifted, GraphSignature(
        parameters=list(parameters),
        buffers=list(buffers),
        user_inputs=inputs[len(state) :],
        user_outputs=[node.name for node in results],
        inputs_to_parameters={name: key for name, key in of_state.items() if key in parameters},
        inputs_to_buffers={name: key for name, key in of_state.items() if key in buffers},
        buffers_to_mutate={}, parameters_to_mutate={}, user_inputs_to_mutate={},
        in_spec=tree_structure(()), out_spec=tree_structure(()),
        backward_signature=None, input_tokens=[], output_tokens=[],
    )  # fmt: skip


def _lifted(
    module: GraphModule, state: Mapping[Any, Tensor], arguments: Sequence[Any], table: Table
) -> GraphModule:
    """Trace a module on fake values of its state and inputs."""
    mode = arguments[0].fake_mode
    held = [mode.from_tensor(value, static_shapes=True) for value in state.values()]

    def follow(*values: Any) -> Any:
        given = dict(zip(state, values[: len(state)], strict=True))
        return _Follower(module, held=given).run(*values[len(state) :])

    with mode, torch.no_grad(), enable_python_dispatcher(), preserve_node_meta():
        lifted: GraphModule = make_fx(follow, decomposition_table=table)(*held, *arguments)
    for node in lifted.graph.find_nodes(op="call_function", target=aten.as_strided_.default):
        if list(node.all_input_nodes[0].users) == [node]:  # the layout of a mean over all places
            node.target = aten.as_strided.default
    lifted.graph.eliminate_dead_code()
    lifted.recompile()
    return lifted


def _take_names(inputs: list[Node], module: GraphModule) -> None:
    """Give a graph's inputs the names and values of `inputs`; rename other nodes that clash."""
    taken = {node.name for node in inputs}
    for node in module.graph.nodes:
        if node.op != "placeholder" and node.name in taken:
            node.name = module.graph._graph_namespace.create_name(node.name, None)
    for old, new in zip(inputs, module.graph.find_nodes(op="placeholder"), strict=True):
        new.name = new.target = old.name
        new.meta = dict(old.meta)


def _program(program: ExportedProgram, module: GraphModule) -> ExportedProgram:
    """Return a program for a graph traced from another program, with its weights and signature."""
    graph = module.graph
    module.recompile()
    module.meta.update(program.graph_module.meta)
    results: Any = graph.output_node().args[0]
    graph.output_node().args = (tuple(results),)
    signature = copy.copy(program.graph_signature)
    signature.output_specs = named_outputs(signature, graph)
    ranges = exported_program._get_updated_range_constraints(module, program.range_constraints)
    calls = exported_program._get_updated_module_call_graph(
        program.graph_module, program.graph_signature, module, signature, program.module_call_graph
    )
    return ExportedProgram(
        module, graph, signature, program.state_dict, ranges, calls, program.example_inputs,
        program.constants, verifiers=program.verifiers,
    )  # fmt: skip


def named_outputs(signature: ExportGraphSignature, graph: Graph) -> list[OutputSpec]:
    """Return a signature's outputs, renamed after the nodes that a graph returns."""
    results: Any = graph.output_node().args[0]
    return [
        replace(spec, arg=TensorArgument(name=result.name))
        if isinstance(result, Node) and isinstance(spec.arg, TensorArgument)
        else spec
        for spec, result in zip(signature.output_specs, results, strict=True)
    ]
