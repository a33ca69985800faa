"""Runs an ExportedProgram node by node in eager PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_map

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from torch.export import ExportedProgram

__all__ = ["capture", "output_nodes", "placeholder_values"]


def output_nodes(program: ExportedProgram) -> list[Node]:
    """The nodes that the user gets back, in order; not those that only update buffers."""
    names = program.graph_signature.user_outputs
    nodes = {n.name: n for n in program.graph.nodes}
    return [nodes[name] for name in names if isinstance(name, str) and name in nodes]


class _Recorder(torch.fx.Interpreter):
    """Runs a graph and keeps a copy of the values of some of its nodes."""

    def __init__(self, module: GraphModule, wanted: Collection[str]) -> None:
        super().__init__(module)
        self._wanted = wanted
        self.values: dict[str, Any] = {}

    def run_node(self, n: Node) -> Any:
        """Run one node; copy its value now, before a later node can write into it."""
        value = super().run_node(n)
        if n.name in self._wanted:
            self.values[n.name] = tree_map(_copied, value)
        return value


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def capture(
    program: ExportedProgram, inputs: Sequence[torch.Tensor], names: Collection[str]
) -> dict[str, Any]:
    """Interpret a program in eager PyTorch and return the values of some nodes by name.

    Args:
        program: any; its weights and buffers are left as they are.
        inputs: a tensor for each user input, in order; never written.
        names: of the nodes to keep.
    """
    module = GraphModule(program.graph_module, program.graph)
    recorder = _Recorder(module, set(names))
    with torch.no_grad():
        recorder.run(*placeholder_values(program, inputs))
    return recorder.values


def placeholder_values(program: ExportedProgram, inputs: Sequence[torch.Tensor]) -> list[Any]:
    """What to run a program's graph with: weights, copies of its buffers and of `inputs`."""
    given = iter(inputs)
    values: list[Any] = []
    for spec in program.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT:
            value = program.state_dict.get(spec.target, program.constants.get(spec.target or ""))
            values.append(_copied(value) if spec.kind is InputKind.BUFFER else value)
        elif isinstance(spec.arg, ConstantArgument):
            values.append(spec.arg.value)
        else:
            values.append(next(given).clone())
    return values
