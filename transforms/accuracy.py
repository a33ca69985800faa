"""Eager's top-1 accuracy on an accuracy gate's samples; the artifact must reach the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file

from transforms.export.trace import CallableProgram
from transforms.goldens.cases import input_dtype, model_dtype
from zoo.errors import ExportError, SourceError
from zoo.sources.random_weights import one_thread

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from zoo.spec import AccuracyGate, InputSpec, ModelSpec, ProgramSpec


def eager_accuracy(
    model: torch.nn.Module, spec: ModelSpec, gate: AccuracyGate, data: Path
) -> float:
    """The fraction of samples whose highest output is their label.

    Args:
        model: in eval mode.
        spec: its entry.
        gate: which program and output judge, and how many samples a call takes.
        data: safetensors with the program's inputs (samples first) and `labels` (int64). Floating
            inputs are rounded to what the program takes, as golden inputs are.

    Raises:
        SourceError: if the file lacks the labels or an input, has none or too few samples, or
            another kind of numbers than the program takes.
        ExportError: if the program has no such output.
    """
    program = next(p for p in spec.programs if p.name == gate.program)
    labels, inputs = _samples(model, program, data)
    module = CallableProgram(model, program)
    right = 0
    for start in range(0, len(labels), gate.batch):
        batch = slice(start, start + gate.batch)
        with torch.no_grad(), one_thread():  # the figure stands in the manifest
            results = module(*(tensor[batch] for tensor in inputs))
        scores = _scores(results, gate)
        right += int((scores.argmax(-1) == labels[batch]).sum())
    return right / len(labels)


def _samples(
    model: torch.nn.Module, program: ProgramSpec, data: Path
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The labels, and the inputs in the program's order and dtypes."""
    tensors = load_file(data)
    missing = {"labels", *(i.name for i in program.inputs)} - set(tensors)
    if missing:
        raise SourceError(str(data.name), f"the accuracy gate's data lacks {min(missing)!r}")
    labels = tensors["labels"]
    if labels.dim() != 1 or len(labels) == 0:
        shape = list(labels.shape)
        fact = f"the accuracy gate's `labels` have shape {shape}, so there are no samples"
        raise SourceError(data.name, fact, "Give one label a sample")
    dtype, samples = model_dtype(model), len(labels)
    inputs = [_input(i, dtype, tensors[i.name], samples, data.name) for i in program.inputs]
    return labels, inputs


def _input(
    spec: InputSpec, dtype: torch.dtype, tensor: torch.Tensor, samples: int, place: str
) -> torch.Tensor:
    """The gate's samples of one input, in the dtype that it has in a model of `dtype`."""
    wanted = input_dtype(spec, dtype)
    if tensor.dim() == 0 or len(tensor) != samples:
        fact = f"the accuracy gate's {spec.name!r} has shape {list(tensor.shape)}"
        raise SourceError(place, fact, f"Give a row for each of the {samples} labels")
    floats = tensor.is_floating_point() and wanted.is_floating_point
    if tensor.dtype is not wanted and not floats:
        fact = f"the accuracy gate's {spec.name!r} is {tensor.dtype}, the program takes {wanted}"
        raise SourceError(place, fact.replace("torch.", ""), "Convert it")
    return tensor.to(wanted)


def _scores(results: Mapping[str, torch.Tensor], gate: AccuracyGate) -> torch.Tensor:
    name = gate.output or next(iter(results))
    if name not in results:
        fact = f"has no output {name!r}, by which the accuracy gate judges"
        raise ExportError(f"program {gate.program}", fact, f"It has: {', '.join(results)}")
    return results[name]
