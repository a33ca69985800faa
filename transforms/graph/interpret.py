"""Runs an ExportedProgram node by node in eager PyTorch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_map


def output_nodes(program: ExportedProgram) -> list[Node]:
    """Return the nodes of the user's outputs, in order, without those that only update buffers."""
    names = program.graph_signature.user_outputs
    nodes = {n.name: n for n in program.graph.nodes}
    return [nodes[name] for name in names if isinstance(name, str) and name in nodes]


class Recorder(torch.fx.Interpreter):
    """An interpreter that runs a program in eager PyTorch and copies the `wanted` nodes' values."""

    def __init__(self, program: ExportedProgram, wanted: Collection[str]) -> None:
        super().__init__(GraphModule(program.graph_module, program.graph))
        self._program = program
        self._wanted = frozenset(wanted)

    def record(self, inputs: Sequence[torch.Tensor]) -> dict[str, Any]:
        """Return the wanted values by name, for the user inputs in order; inputs stay unchanged."""
        self._values: dict[str, Any] = {}
        with torch.no_grad():
            self.run(*_placeholder_values(self._program, inputs))
        return self._values

    def run_node(self, n: Node) -> Any:
        """Run one node; copy its value now, before a later node can write into it."""
        value = self.compute(n)
        if n.name in self._wanted:
            self._values[n.name] = tree_map(_copied, value)
        return value

    def compute(self, node: Node) -> Any:
        """Return a node's value; subclasses override it to substitute other values."""
        return super().run_node(node)


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def capture(
    program: ExportedProgram, inputs: Sequence[torch.Tensor], names: Collection[str]
) -> dict[str, Any]:
    """Return the values of the named nodes of a program by name; see `Recorder`."""
    return Recorder(program, names).record(inputs)


def _placeholder_values(program: ExportedProgram, inputs: Sequence[torch.Tensor]) -> list[Any]:
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
