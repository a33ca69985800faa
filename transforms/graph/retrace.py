"""Trace a program anew, with operators written out.

torch does it by `ExportedProgram.run_decompositions`, which follows a program twice through layers
that turn writes into results. A program that writes nothing needs them not: it is followed once, in
a sixth of the time (a quarter of what a conversion of mobilenet_v3_small took its processor).
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any
from unittest.mock import patch

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._export import utils as export_utils
from torch._guards import TracingContext, tracing
from torch._ops import OpOverload
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram, _trace, exported_program
from torch.export.graph_signature import TensorArgument
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.runtime_assert import insert_deferred_runtime_asserts
from torch.fx.traceback import preserve_node_meta

from transforms.graph.guards import any_length
from transforms.graph.schemas import writes

aten = torch.ops.aten

# Of operators that a decomposition keeps whole: kernels outside and inside of it, rule for fakes.
_KEPT_WHOLE: dict[OpOverload, tuple[dict[Any, Any], dict[Any, Any], Callable[..., Any]]] = {}


@contextmanager
def _composites_overridden(
    override: Callable[..., Any], table: Mapping[OpOverload, Callable[..., Any]]
) -> Iterator[None]:
    """Override composite operators as torch does; 700 of them, which take it 0.1 s, only once."""
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
    """List and prepare composite operators once for all decompositions, not anew in each.

    torch lists them for every namespace, too.
    """
    once = lru_cache(export_utils._materialize_cpp_cia_ops)
    override = partial(_composites_overridden, exported_program._override_composite_implicit_decomp)
    with (
        patch.object(export_utils, "_materialize_cpp_cia_ops", once),
        patch.object(exported_program, "_override_composite_implicit_decomp", override),
    ):
        yield


Table = Mapping[OpOverload, Callable[..., Any]]


def decompose_program(
    program: ExportedProgram, table: Table, results: Mapping[Node, OpOverload] | None = None
) -> ExportedProgram:
    """Trace a program again, for any length, with each operator in `table` by its function.

    `results` has, for calls that write into their first argument, the operator that returns what
    they would write: what reads the argument afterwards reads this.
    """
    with any_length(), composites_prepared_once():
        traced = _followed_once(program, table, results or {})
        if traced is None:
            traced = program.run_decompositions(dict(table))
        return traced


def _followed_once(
    program: ExportedProgram, table: Table, results: Mapping[Node, OpOverload]
) -> ExportedProgram | None:
    """Trace a program that writes nothing; None where only torch's own way can."""
    inputs = program.graph.find_nodes(op="placeholder")
    fakes = [node.meta.get("val") for node in inputs]
    if not _is_plain(program, results) or not all(type(f) is FakeTensor for f in fakes):
        return None
    try:
        module = _traced(program, table, fakes, results)
    except Exception:  # noqa: BLE001 - torch's own way says what is wrong, in words that are known
        return None
    graph = module.graph
    graph.eliminate_dead_code()
    if program.range_constraints:  # numbers of a size are computed from sizes alone
        insert_deferred_runtime_asserts(module, fakes[0].fake_mode.shape_env, "", export=True)
    if graph.find_nodes(op="get_attr") or any(map(writes, graph.nodes)):
        return None
    _take_names(inputs, module)
    return _program(program, module)


def _is_plain(program: ExportedProgram, results: Mapping[Node, OpOverload]) -> bool:
    """Return whether a program is one graph of tensor operators that write nothing else."""
    for node in program.graph.nodes:
        called = node.op == "call_function"
        if node.op not in {"placeholder", "output"} and not called:
            return False
        if called and not isinstance(node.target, OpOverload) and not _is_of_sizes(node):
            return False
        if "unbacked_bindings" in node.meta or (writes(node) and node not in results):
            return False
    return bool(program.graph.find_nodes(op="placeholder"))


def _is_of_sizes(node: Node) -> bool:
    value = node.meta.get("val")
    return node.target is operator.getitem or isinstance(
        value, (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)
    )


class _WithoutWrites(Interpreter):
    """Runs a graph with results in place of some writes."""

    def __init__(self, module: GraphModule, results: Mapping[Node, OpOverload]) -> None:
        super().__init__(module)
        self._results = results

    def run_node(self, n: Node) -> Any:
        """Run a node; what reads a written tensor after it reads its result."""
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
    """Follow a program on its inputs' fake values, as torch follows it for the last time."""
    mode = fakes[0].fake_mode
    ways: Any = {aten.lift_fresh_copy.default: aten.clone.default} | dict(table)
    whole, ways = exported_program._split_decomp_table_to_cia_and_python_decomp(ways)
    with ExitStack() as stack:
        for context in (
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
            stack.enter_context(context)
        follow = _WithoutWrites(program.graph_module, results).run
        module: GraphModule = make_fx(follow, decomposition_table=ways)(*fakes)
    return module


def _take_names(inputs: list[Node], module: GraphModule) -> None:
    """Give the inputs of a graph names and values of others; no other node keeps such a name."""
    taken = {node.name for node in inputs}
    for node in module.graph.nodes:
        if node.op != "placeholder" and node.name in taken:
            node.name = module.graph._graph_namespace.create_name(node.name, None)
    for old, new in zip(inputs, module.graph.find_nodes(op="placeholder"), strict=True):
        new.name = new.target = old.name
        new.meta = dict(old.meta)


def _program(program: ExportedProgram, module: GraphModule) -> ExportedProgram:
    """Return a program of a graph traced from another's, with its weights and signature."""
    graph = module.graph
    module.recompile()
    module.meta.update(program.graph_module.meta)
    signature = copy.copy(program.graph_signature)
    results: Any = graph.output_node().args[0]
    graph.output_node().args = (tuple(results),)
    signature.output_specs = [
        replace(spec, arg=TensorArgument(arg.name))
        if isinstance(spec.arg, TensorArgument)
        else spec
        for spec, arg in zip(signature.output_specs, results, strict=True)
    ]
    ranges = exported_program._get_updated_range_constraints(module, program.range_constraints)
    return ExportedProgram(
        root=module,
        graph=graph,
        graph_signature=signature,
        state_dict=program.state_dict,
        range_constraints=ranges,
        module_call_graph=exported_program._get_updated_module_call_graph(
            program.graph_module, program.graph_signature, module, signature,
            program.module_call_graph,
        ),
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=program.verifiers,
    )  # fmt: skip
