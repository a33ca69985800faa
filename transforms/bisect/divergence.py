"""What is known of a wrong result: the first place where a program and eager PyTorch part."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import torch

from transforms.bisect.comparing import Difference, comparable

if TYPE_CHECKING:
    from pathlib import Path

    from torch.fx import Node

__all__ = ["Divergence", "Runner", "Stage", "divergence_at", "is_probe"]

# Lowers a program, runs it on the target, and returns its outputs in order.
Runner = Callable[[torch.export.ExportedProgram, Sequence[torch.Tensor]], Sequence[torch.Tensor]]

_SOURCE_LINE = re.compile(r'File "(.+?)", line (\d+)')


class Stage(StrEnum):
    """Between which two forms of a program the numbers part."""

    PASSES = "passes"  # a pass changed what eager computes
    LOWERING = "lowering"  # the target computes something else than eager


@dataclass(frozen=True)
class Divergence:
    """The first place where a program computes something else than eager PyTorch.

    `max_abs` is in the node's own units, `snr_db` in decibels; infinite where the run ended in an
    error. `reproducer` is the folder that `python -m transforms.bisect` takes.
    """

    stage: Stage
    pass_name: str | None  # the first wrong pass; None in lowering
    node: str
    module_path: str
    source_line: str
    max_abs: float
    snr_db: float
    reproducer: Path | None = None


def divergence_at(stage: Stage, node: Node, distance: Difference) -> Divergence:
    """The record of a wrong node, with where in the model it comes from."""
    stack = node.meta.get("nn_module_stack") or {}
    lines = [
        f"{file}:{line}"
        for file, line in _SOURCE_LINE.findall(node.meta.get("stack_trace") or "")
        if "torch/nn/modules" not in file
    ]
    return Divergence(
        stage=stage,
        pass_name=None,
        node=node.name,
        module_path=next(reversed(list(stack.values())))[0] if stack else "",
        source_line=lines[-1] if lines else "",
        max_abs=distance.max_abs,
        snr_db=distance.snr_db,
    )


def is_probe(node: Node) -> bool:
    """Whether a node is a computed tensor of real numbers: integers may tip over by rounding."""
    value = node.meta.get("val")
    if node.op != "call_function" or not isinstance(value, torch.Tensor):
        return False
    return comparable(value) and value.is_floating_point()
