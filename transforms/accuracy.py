"""Eager's top-1 accuracy on an accuracy gate's samples; the artifact must reach the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file

from transforms.export import CallableProgram
from zoo.errors import SourceError

if TYPE_CHECKING:
    from pathlib import Path

    from zoo.spec import AccuracyGate, ModelSpec

__all__ = ["eager_accuracy"]


def eager_accuracy(
    model: torch.nn.Module, spec: ModelSpec, gate: AccuracyGate, data: Path
) -> float:
    """The fraction of samples whose highest output is their label.

    Args:
        model: in eval mode.
        spec: its entry.
        gate: which program and output judge, and how many samples a call takes.
        data: safetensors with the program's inputs (samples first) and `labels` (int64).

    Raises:
        SourceError: if the file lacks the labels or an input.
    """
    program = next(p for p in spec.programs if p.name == gate.program)
    tensors = load_file(data)
    missing = {"labels", *(i.name for i in program.inputs)} - set(tensors)
    if missing:
        raise SourceError(str(data.name), f"the accuracy gate's data lacks {min(missing)!r}")
    labels = tensors.pop("labels")
    module = CallableProgram(model, program)
    right = 0
    for start in range(0, len(labels), gate.batch):
        batch = slice(start, start + gate.batch)
        with torch.no_grad():
            results = module(*(tensors[i.name][batch] for i in program.inputs))
        scores = results[gate.output] if gate.output else next(iter(results.values()))
        right += int((scores.argmax(-1) == labels[batch]).sum())
    return right / len(labels)
