"""Targets and passes that are wrong in one place, on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.fx import GraphModule

from transforms.bisect.pieces import CRASHED, differences
from transforms.bisect.reproducer import rerun
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.interpret import capture, output_nodes
from zoo.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch.export import ExportedProgram

    from menagerie.validation.findings import OutputParity
    from transforms.bisect.pieces import Piece, Tolerances
    from transforms.graph.editor import ProgramEditor

aten = torch.ops.aten


class Block(nn.Module):
    """A residual block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = (
            nn.LayerNorm(width),
            nn.Linear(width, 12),
            nn.Linear(12, width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    """Residual blocks, then two branches that join."""

    def __init__(self, blocks: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.Sequential(*[Block(8) for _ in range(blocks)])
        self.left, self.right = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        x = self.blocks(x)
        return torch.tanh(self.left(x)) * torch.sigmoid(self.right(x)) + x


def export(module: nn.Module, *inputs: torch.Tensor) -> ExportedProgram:
    """A program in functional form."""
    return torch.export.export(module.eval(), inputs, strict=False).run_decompositions({})


class _Target(torch.fx.Interpreter):
    """A target that computes as eager does, but for what `corrupt` makes of a node's value."""

    def __init__(self, module: torch.fx.GraphModule, corrupt: Callable[[Any, Any], Any]) -> None:
        super().__init__(module)
        self._corrupt = corrupt

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run a node as eager does, then corrupt its value."""
        return self._corrupt(n, super().run_node(n))


class Runner:
    """Runs a program on a corrupt target and counts how often."""

    def __init__(self, corrupt: Callable[[Any, Any], Any] = lambda _, value: value) -> None:
        self.runs = 0
        self._corrupt = corrupt

    def __call__(self, piece: Piece, tolerances: Tolerances) -> dict[str, OutputParity]:
        """Run a program whose inputs are all tensors; a target that dies is wrong everywhere."""
        self.runs += 1
        program, names = piece.program, [n.name for n in output_nodes(piece.program)]
        expected = capture(program, piece.inputs, names)
        try:
            found = dict(zip(names, self._outputs(program, piece.inputs), strict=True))
        except SessionError:
            return dict.fromkeys(names, CRASHED)
        return differences(expected, found, tolerances)

    def _outputs(
        self, program: ExportedProgram, inputs: Sequence[torch.Tensor]
    ) -> Sequence[torch.Tensor]:
        given, signature = iter(inputs), program.graph_signature
        values = {**program.state_dict, **program.constants}
        arguments = [
            next(given) if spec.target is None else values[spec.target]
            for spec in signature.input_specs
        ]
        with torch.no_grad():
            target = _Target(GraphModule(program.graph_module, program.graph), self._corrupt)
            results: tuple[torch.Tensor, ...] = tuple(target.run(*arguments))
        return results


def gone(folder: Path, **options: Any) -> bool:
    """Whether a reproducer that runs again shows no fault any more."""
    return all(seen.passed for seen in rerun(folder, **options).values())


def wrong_at(name: str) -> Callable[[Any, Any], Any]:
    """A kernel that is wrong in one node only."""
    return lambda node, value: value * 1.5 + 0.3 if node.name == name else value


def computing(program: ExportedProgram) -> list[str]:
    """The names of its operators."""
    return [n.name for n in program.graph.nodes if n.op == "call_function"]


class Harmless(GraphPass):
    """Spells gelu's default out."""

    name = "harmless"
    summary = "Replaces Gelu(x) with Gelu(x, none)"

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """See the class."""
        for node in editor.calls(aten.gelu.default):
            fresh = editor.call(aten.gelu.default, *node.args, approximate="none", like=node)
            editor.replace(node, fresh)


class DropsBias(GraphPass):
    """Loses the bias of the layers that widen to twelve: a deliberate fault."""

    name = "drops_bias"
    summary = "Replaces Linear(x, w, b) with Linear(x, w)"

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """See the class."""
        for node in editor.calls(aten.linear.default):
            if node.meta["val"].shape[-1] == 12:
                fresh = editor.call(aten.linear.default, *node.args[:2], like=node)
                editor.replace(node, fresh)


class Shifts(GraphPass):
    """Adds to what comes of tanh: right only where that is zero, its default."""

    name = "shifts"
    summary = "Replaces Tanh(x) with Tanh(x) + by"

    def __init__(self, *, by: float = 0.0) -> None:
        self._by = by

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """See the class."""
        for node in editor.calls(aten.tanh.default):
            fresh = editor.call(aten.tanh.default, *node.args, like=node)
            moved = editor.call(aten.add.Tensor, fresh, self._by, like=node)
            editor.replace(node, moved)
