"""What can be said of a node at which a program and eager PyTorch part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from transforms.bisect.comparing import Difference, comparable
from transforms.graph.origin import module_path, source_line
from zoo.records import Divergence, DivergenceStage

if TYPE_CHECKING:
    from torch.fx import Node

__all__ = ["Runner", "divergence_at", "is_probe"]

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
