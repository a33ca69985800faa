"""What eager PyTorch says of a model, for its artifact to be held to: accuracy, words, times."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import torch
from safetensors.torch import load_file

from menagerie.format.bundle_manifest import TensorSpec
from menagerie.profile import take_turn
from menagerie.speech.recogniser import Program
from menagerie.speech.word_errors import HeldOut, count_errors
from menagerie.timing import artifact, time_in_turns
from menagerie.validation.checks import stand_in
from transforms.export.trace import eager_of
from transforms.goldens.cases import input_dtype, model_dtype
from transforms.progress import in_parts, report_step
from zoo.errors import ExportError, SessionError, SourceError
from zoo.sources.context import resolve_inside
from zoo.sources.random_weights import one_thread
from zoo.speech import held_out, recipe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from menagerie.speech.recipe import Recipe
    from menagerie.validation.findings import Measurement
    from transforms.export.prepare import Prepared
    from transforms.targets import Target
    from zoo.sources.context import Context
    from zoo.spec import AccuracyGate, InputSpec, ModelSpec, ProgramSpec, SpeechSpec


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
    eager = eager_of(model, program)
    right = 0
    for start in range(0, len(labels), gate.batch):
        batch = slice(start, start + gate.batch)
        with torch.no_grad(), one_thread():  # the figure is in the manifest
            results = eager({name: tensor[batch] for name, tensor in inputs.items()})
        scores = _scores(results, gate)
        right += int((scores.argmax(-1) == labels[batch]).sum())
    return right / len(labels)


def _samples(
    model: torch.nn.Module, program: ProgramSpec, data: Path
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
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
    inputs = {i.name: _input(i, dtype, tensors[i.name], samples, data.name) for i in program.inputs}
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


class SpeechParts(NamedTuple):
    """The recipe of a bundle, and the recordings of its gate."""

    recipe: Recipe
    held_out: HeldOut | None


def speech_parts(
    model: torch.nn.Module, spec: SpeechSpec, programs: Sequence[ProgramSpec], context: Context
) -> SpeechParts:
    """Read an entry's recordings and count eager's word errors on them.

    Args:
        model: in eval mode.
        spec: what its entry says of speech.
        programs: the entry's.
        context: where the entry is.

    Raises:
        SourceError: if the recordings cannot be had, or the recipe is not valid.
    """
    if spec.gate is None:
        return SpeechParts(recipe(spec), None)
    known, plain = held_out(resolve_inside(spec.gate.folder, context), spec.rate), recipe(spec)
    eager = {program.name: eager_program(model, program) for program in programs}
    errors = {head: count_errors(plain, head, eager, known, context.model) for head in plain.heads}
    return SpeechParts(recipe(spec, errors), known)


def eager_program(model: torch.nn.Module, spec: ProgramSpec) -> Program:
    """A program run by eager PyTorch, for the decoding loops that run artifacts."""
    inputs = tuple(TensorSpec(i.name, i.dtype, i.shape) for i in spec.inputs)
    ranges = {n: (d.low, d.high, d.multiple_of) for n, d in spec.dimensions.items()}
    eager = eager_of(model, spec)

    def run(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        with torch.inference_mode():
            results = eager({i.name: torch.from_numpy(arrays[i.name]) for i in inputs})
        return {name: value.numpy() for name, value in results.items()}

    return Program(run, inputs, ranges)


ProgramTimes = tuple[tuple[str, "Measurement"], ...]  # by program

_SECONDS = 1.0  # for an artifact and eager together

_log = logging.getLogger(__name__)


def measure_beside_eager(
    bundle: Path,
    programs: Sequence[Prepared],
    target: Target,
    *,
    threads: int,
    seconds: float = _SECONDS,
) -> tuple[ProgramTimes, ProgramTimes]:
    """Time the programs of a bundle and eager PyTorch in turns, on the same inputs and threads.

    The artifact runs in a process of its own without torch, eager in this one. The golden case is
    a representative one (`menagerie.validation.checks`), by the times that eager took.

    Args:
        bundle: written, not yet proven.
        programs: all of them.
        target: that they were lowered for.
        threads: that each side uses.
        seconds: how long a program is timed for, both sides together.

    Returns:
        The artifacts' times, and eager's. Neither where there is no time for it, where this machine
        only emulates the target's device, or where a program cannot be run: why, is found out and
        said by the validation that follows.
    """
    if seconds <= 0 or target.emulated_here:
        return (), ()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            pairs = []
            for program in in_parts(programs, start=0.9):
                pairs.append(_in_turns(bundle, program, threads, seconds))
                report_step(f"program {program.name}: timed in turns with eager")
    except SessionError as error:
        _log.warning("No latencies: %s", error)
        return (), ()
    finally:
        torch.set_num_threads(before)
    names = [program.name for program in programs]
    artifacts, eager = zip(*pairs, strict=True)
    return tuple(zip(names, artifacts, strict=True)), tuple(zip(names, eager, strict=True))


def _in_turns(
    bundle: Path, program: Prepared, threads: int, seconds: float
) -> tuple[Measurement, Measurement]:
    elements = [sum(t.numel() for t in case.inputs.values()) for case in program.goldens]
    number = stand_in(elements, [case.seconds for case in program.goldens])
    inputs = program.goldens[number].inputs
    with artifact(bundle, program.name, number, threads) as partner:
        # Eager first: the artifact is loaded during its call that is not counted.
        sides = (lambda: take_turn(lambda: program.eager(inputs)), partner.turn)
        eager, found = time_in_turns(sides, seconds=seconds, threads=threads, case=number)
    return found, eager
